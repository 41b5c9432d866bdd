"""`muster status --watch` as seen at a terminal."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios

import pytest
from cluster_ports import free_ports

WORKERS = 40


class Terminal(object):
    """What a terminal of that size shows of a program's output; only the sequences that `muster status` writes."""

    def __init__(self, rows, columns, words):
        self._primary, secondary = pty.openpty()
        self._secondary = os.dup(secondary)
        self.resize(rows, columns)
        self._lines, self._row, self._column, self._rest = [""], 0, 0, ""
        self.scrolled = self.drawn = 0
        self.process = subprocess.Popen(words, stdout=secondary)
        os.close(secondary)

    def resize(self, rows, columns):
        self.rows, self.columns = rows, columns
        fcntl.ioctl(self._secondary, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _put(self, character):
        if self._column == self.columns:  # a terminal goes on below
            self._column = 0
            self._down()
        line = self._lines[self._row].ljust(self._column)
        self._lines[self._row] = line[:self._column] + character + line[self._column + 1:]
        self._column += 1

    def _down(self):
        self._row += 1
        if self._row == len(self._lines):
            self._lines.append("")
        if self._row == self.rows:
            self._lines.pop(0)
            self._row -= 1
            self.scrolled += 1

    def _sequence(self, number, letter):
        if letter == "A":
            self._row = max(0, self._row - int(number))
        elif letter == "H":
            self._row = self._column = 0
        elif letter == "J":
            self.drawn += 1
            first = 0 if number == "2" else self._row
            keep = self._lines[:first] + ([] if number == "2" else [self._lines[first][:self._column]])
            self._lines = keep or [""]
            while len(self._lines) <= self._row:
                self._lines.append("")
        else:
            assert letter == "m", letter

    def read(self):
        """Reads the output that is there, waiting at most a second for some."""
        if select.select([self._primary], [], [], 1)[0]:
            self._rest += os.read(self._primary, 65536).decode()
        while self._rest:
            if self._rest[0] == "\x1b":
                sequence = re.match(r"\x1b\[(\d*)([A-Za-z])", self._rest)
                if sequence is None:
                    return
                self._sequence(*sequence.groups())
                self._rest = self._rest[sequence.end():]
                continue
            character, self._rest = self._rest[0], self._rest[1:]
            if character == "\n":
                self._down()
            elif character == "\r":
                self._column = 0
            else:
                self._put(character)

    def wait_for(self, pattern, deadline):
        while not re.search(pattern, self.text(), re.M):
            assert self.process.poll() is None
            deadline()
            self.read()
        return self.text()

    def text(self):
        return "\n".join(line.rstrip() for line in self._lines)

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self._primary)
        os.close(self._secondary)


@pytest.fixture
def lonely_task(start_task, muster_program):
    """The only running task of a cluster: its address, the task, and how to start it again."""
    ports = free_ports(WORKERS + 1)
    cluster = "ps=localhost:%d;worker=%s" % (ports[0], ",".join("localhost:%d" % port for port in ports[1:]))
    words = ["--cluster", cluster, "--job", "ps", "--heartbeat", "0.3"]
    return "localhost:%d" % ports[0], start_task(words), lambda: start_task(words)


@pytest.fixture
def watch(muster_program):
    """watch(rows, columns, address): a terminal in which the command runs."""
    terminals = []

    def start(rows, columns, address):
        terminals.append(Terminal(rows, columns, [muster_program, "status", "--watch", "--interval", "0.1", "--target", address]))
        return terminals[-1]

    yield start
    for terminal in terminals:
        terminal.close()


@pytest.mark.parametrize("rows, columns", [(24, 80), (10, 40)])
def test_many_tasks_fit_in_a_small_terminal(rows, columns, lonely_task, watch, deadline):
    address = lonely_task[0]
    terminal = watch(rows, columns, address)
    while terminal.drawn < 2:  # the second in the place of the first
        deadline()
        terminal.read()
    shown = terminal.wait_for(r"^worker: .*\n(.+\n)*\Z", deadline)
    assert terminal.scrolled == 0 and shown.count("41 tasks, asked") == 1
    lines = shown.rstrip("\n").split("\n")
    assert len(lines) < rows and all(len(line) <= columns for line in lines)
    assert lines[1].split()[:2] == ["TASK", "HEALTH"] and "STEPS/S" in lines[1]
    # Those that are not healthy come first; the ps is.
    assert lines[2].startswith("worker 0 ") and not any(line.startswith("ps 0 ") for line in lines)
    more = re.search(r"^\.\.\. and (\d+) more$", shown, re.M)
    tasks = [line for line in lines[:lines.index(more[0])] if re.match(r"worker \d+  ", line)]
    assert len(tasks) >= 2 and len(tasks) + int(more[1]) == WORKERS + 1


def test_a_larger_terminal_shows_them_all(lonely_task, watch, deadline):
    terminal = watch(24, 80, lonely_task[0])
    terminal.wait_for(r"^\.\.\. and \d+ more$", deadline)
    terminal.resize(200, 200)
    shown = terminal.wait_for(r"VARIABLES(.*\n)*^worker: ", deadline)
    assert " more" not in shown and len(re.findall(r"^worker \d+  ", shown, re.M)) == WORKERS
    assert shown.count("41 tasks, asked") == 1


def test_a_target_that_is_gone_has_one_line_until_it_is_back(lonely_task, watch, deadline):
    address, task, start_again = lonely_task
    terminal = watch(24, 80, address)
    terminal.wait_for("41 tasks", deadline)
    task.kill()
    terminal.wait_for("does not answer for 0 s: ", deadline)
    shown = terminal.wait_for("does not answer for [1-9] s: ", deadline)
    assert shown.rstrip("\n").count("\n") == 0 and "41 tasks" not in shown
    start_again()
    assert "does not answer" not in terminal.wait_for("41 tasks", deadline)
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.process.wait(timeout=30) == 0


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_elsewhere_it_is_said_once(words, lonely_task, muster_program, tmp_path, deadline):
    address, task, start_again = lonely_task
    out, errors = tmp_path / "out", tmp_path / "errors"
    with open(out, "w") as out_file, open(errors, "w") as errors_file:
        process = subprocess.Popen([muster_program, "status", "--watch", "--interval", "0.05", "--target", address, *words],
                                   stdout=out_file, stderr=errors_file)

    def wait_for(pattern, path):
        while not re.search(pattern, path.read_text()):
            assert process.poll() is None
            deadline()

    said = errors if words else out
    try:
        wait_for("41 tasks|incarnation", out)
        task.kill()
        wait_for("%s does not answer: " % address, said)
        # Long enough for it to be said again: two others find no task either.
        for _ in range(2):
            assert subprocess.run([muster_program, "status", "--target", address], capture_output=True).returncode == 1
        start_again()
        wait_for(r"%s answers again after \d+ s\n" % address, said)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
    assert said.read_text().count("does not answer") == 1
