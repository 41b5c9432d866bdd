"""`muster launch --max-restarts`: a task that is killed comes back in its place, and training goes on."""
import os
import re
import signal
import subprocess
import threading

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
REPLICA = os.path.join(HERE, "..", "recovery", "replica.py")


def pids_of(parent, word):
    """Children of a process whose command has this word."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open("/proc/%s/stat" % name) as stat, open("/proc/%s/cmdline" % name, "rb") as command:
                if int(stat.read().rpartition(")")[2].split()[1]) == parent and word.encode() in command.read().split(b"\0"):
                    found.append(int(name))
        except OSError:  # has ended meanwhile
            continue
    return found


class Launch(object):
    def __init__(self, muster_program, *words):
        self.process = subprocess.Popen([muster_program, "launch", *words], stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True)
        self.lines = []
        # Whatever goes wrong, the test ends.
        self._guard = threading.Timer(240, self.process.kill)
        self._guard.start()

    def wait_for(self, pattern):
        for line in self.process.stdout:
            self.lines.append(line)
            if re.search(pattern, line):
                return
        raise AssertionError("no line with %r in\n%s" % (pattern, "".join(self.lines)))

    def end(self):
        self.lines += self.process.stdout.readlines()
        self._guard.cancel()
        return self.process.wait()


@pytest.fixture
def launched(muster_program):
    all_of_them = []

    def start(*words):
        all_of_them.append(Launch(muster_program, *words))
        return all_of_them[-1]

    yield start
    for launch in all_of_them:
        launch.process.kill()
        launch.end()


@pytest.mark.parametrize("job, index", [("ps", 0), ("worker", 0), ("worker", 1)])
def test_a_killed_task_comes_back(launched, tmp_path, job, index):
    launch = launched("--ps", "1", "--workers", "2", "--max-restarts", "3", REPLICA, "--checkpoint_dir", str(tmp_path),
                      "--save_steps", "5")
    launch.wait_for(r"\[worker 1\] \S+ step [1-9]")
    launch.wait_for(r"\[worker 0\] \S+ step \d\d")  # past the first checkpoints
    pids = pids_of(launch.process.pid, "--job_name=%s" % job)
    [pid] = [pid for pid in pids if pid in pids_of(launch.process.pid, "--task_index=%d" % index)]
    os.kill(pid, signal.SIGKILL)
    launch.wait_for(r"%s %d failed with status 137; it is started again \(1 of 3\)" % (job, index))
    launch.wait_for(r"\[%s %d\] \S+ serving" % (job, index))
    # All workers need the parameter server; one that has come back takes part.
    for worker in (0, 1) if job == "ps" else (index,):
        launch.wait_for(r"\[worker %d\] \S+ step \d" % worker)
    launch.process.send_signal(signal.SIGINT)
    assert launch.end() == 130, "".join(launch.lines)


def test_restarts_are_counted(launched, tmp_path):
    program = tmp_path / "fails.sh"
    program.write_text("#!/bin/sh\ncase \"$*\" in *=ps*) sleep 600;; esac\necho fails again\nexit 7\n")
    program.chmod(0o755)
    launch = launched("--ps", "1", "--workers", "1", "--max-restarts", "2", str(program))
    assert launch.end() == 7
    text = "".join(launch.lines)
    assert "started again (2 of 2)" in text and "started again (3 of" not in text
    assert "worker 0 ended with status 7" in text
