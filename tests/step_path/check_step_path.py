"""check_step_path.py STEP_PATH SYMBOLIZER [--functions]: every file that runs in a step is in docs/ARCHITECTURE.md.

Starts STEP_PATH as a ps, a worker and a client over gRPC, and once as a local session. After some steps the plan is
made and every cache is filled; then the counters are cleared, one step runs, and what it ran is read. Work that has
nothing to do with the step (a heartbeat, a timer) may run meanwhile, so what counts has run in each of several rounds.
With --functions all that ran is printed.
"""
import collections
import json
import os
import re
import socket
import subprocess
import sys

import step_table

WARM_STEPS = 20
ROUNDS = 10


class Process(object):
    """STEP_PATH in one of its roles."""

    def __init__(self, program, *words):
        environment = dict(os.environ, MUSTER_FAST="0")  # over gRPC, as with stock peers
        self._process = subprocess.Popen([program] + list(words), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         text=True, env=environment)
        self._answer("start")

    def _answer(self, command):
        lines = []
        for line in self._process.stdout:
            line = line.rstrip("\n")
            if line == "ok":
                return lines
            lines.append(line)
        sys.exit("%s of %s: %s" % (command, self._process.args, "\n".join(lines)))

    def do(self, command):
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        return self._answer(command)

    def close(self):
        self._process.stdin.close()
        self._process.wait(60)


def free_addresses(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = ["127.0.0.1:%d" % s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return addresses


def measure(processes, client):
    """The pieces of code that ran in every round: (file, offset)."""
    for _ in range(WARM_STEPS):
        client.do("step")
    rounds = []
    for _ in range(ROUNDS):
        for process in processes:
            process.do("clear")
        client.do("step")
        rounds.append(set(piece for process in processes for piece in process.do("dump")))
    return set.intersection(*rounds)


def functions_at(pieces, symbolizer):
    """What ran, by file of the repository: {file: {function}}. What a compiler has inlined counts for its own file."""
    by_object = collections.defaultdict(list)
    for piece in pieces:
        name, offset = piece.rsplit(" ", 1)
        by_object[name].append(offset)
    ran = collections.defaultdict(set)
    for name, offsets in by_object.items():
        out = subprocess.run([symbolizer, "--obj=" + name, "--output-style=JSON", "--inlines"], text=True, check=True,
                             input="\n".join(offsets), stdout=subprocess.PIPE).stdout
        for answer in json.loads("[%s]" % ",".join(out.splitlines())):
            for symbol in answer.get("Symbol", []):
                path = os.path.normpath(symbol["FileName"])
                if path.startswith(step_table.ROOT + os.sep):
                    ran[os.path.relpath(path, step_table.ROOT)].add(symbol["FunctionName"])
    return ran


def is_counted(path):
    """Kernels differ from graph to graph: the folders of ops/ are one row. Build outputs are not read."""
    return path.startswith("muster/") and not re.match(r"muster/ops/\w+/", path)


def main():
    program, symbolizer = sys.argv[1:3]
    prints_all = sys.argv[3:] == ["--functions"]
    ps, worker = free_addresses(2)
    processes = [Process(program, role, ps, worker) for role in ("ps", "worker", "client")]
    ran_in = {step_table.CLUSTER: functions_at(measure(processes, processes[2]), symbolizer)}
    for process in reversed(processes):
        process.close()
    alone = Process(program, "local")
    ran_in[step_table.LOCAL] = functions_at(measure([alone], alone), symbolizer)
    alone.close()
    failed = False
    for title, ran in ran_in.items():
        named = set(stem for stem, _ in step_table.read_table(title))
        by_stem = collections.defaultdict(set)
        for path in filter(is_counted, ran):
            by_stem[os.path.splitext(path)[0][len("muster/"):]] |= ran[path]
        print("%s: %d files (x.h and x.cc are one), %d lines" % (title, len(by_stem), step_table.size(by_stem)))
        for stem in sorted(by_stem):
            if stem not in named:
                print("  %s has run and is not in the table" % stem)
                failed = True
            if prints_all or stem not in named:
                print("  %s: %s" % (stem, ", ".join(sorted(by_stem[stem]))))
        for stem in sorted(named - set(by_stem)):
            print("  %s has not run this time" % stem)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
