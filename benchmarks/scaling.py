"""make bench-scaling: how cost grows with workers and parameter servers, nodes, bytes and variables.

    scaling.py [--save] [PART...]

Prints the numbers and how fast they grow: the exponent between two sizes, 1 where twice as much takes twice as long.
--save keeps them in benchmarks/results/ and draws docs/scaling_*.svg."""
import argparse
import datetime
import json
import math
import os
import subprocess
import sys

import svg
from ports import free_ports
from run import HERE, ROOT, commit, machine, save

PROGRAM = os.path.join(HERE, "scaling_steps.py")
MUSTER = os.environ.get("MUSTER_COMMAND", os.path.join(ROOT, "build", "release", "bin", "muster"))
PYTHON = os.environ.get("MUSTER_PYTHON", os.path.join(ROOT, ".venv", "bin", "python"))

WORKERS = (1, 2, 3, 4, 6, 8)
SERVERS = (1, 2, 4)
NODES = (10, 30, 100, 300, 1000, 3000, 10000)
BYTES = tuple(4 << shift for shift in (0, 4, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26))
VARIABLES = (1, 10, 100, 1000, 10000, 100000)
SECONDS = 2.0  # of steps, with each number of workers
# An exponent above this is marked, where a step takes long enough to measure it.
STEEP, LONG = 1.25, 2e-3
ONCE = 10.0  # seconds


def _measure(name, size, fast=True):
    """The fastest of two processes, or the only one where it takes long."""
    environment = dict(os.environ, MUSTER_FAST="1" if fast else "0")
    found = []
    for _ in range(2):
        done = subprocess.run([PYTHON, PROGRAM, "muster:" + name, str(size)], env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit("%s of %d failed:\n%s" % (name, size, done.stderr[-2000:]))
        found.append(json.loads(done.stdout.splitlines()[-1])["value"])
        if sum(found[0].values()) > ONCE:
            break
    return {key: min(each[key] for each in found) for key in found[0]}


def _grow(name, sizes, fast=True):
    """{what: [(size, seconds), ...]}, printed with the exponents of growth."""
    lines = {}
    for size in sizes:
        for what, seconds in _measure(name, size, fast).items():
            line = lines.setdefault(what, [])
            line.append((size, seconds))
            growth = "" if len(line) < 2 else "%6.2f" % _exponent(*line[-2:])
            steep = len(line) > 1 and line[-2][1] > LONG and _exponent(*line[-2:]) > STEEP
            print("%-12s %-11s %10d %12.1f us %s%s" % (name + ("" if fast else "*"), what, size, 1e6 * seconds, growth,
                                                      "  STEEP" if steep else ""), flush=True)
    return lines


def _exponent(before, after):
    return math.log(after[1] / before[1]) / math.log(after[0] / before[0])


class _Cluster(object):
    """Parameter servers and workers, each a process."""

    def __init__(self, servers, workers):
        ports = ["127.0.0.1:%d" % port for port in free_ports(servers + workers)]
        spec = {"ps": ports[:servers], "worker": ports[servers:]}
        text = ";".join("%s=%s" % (job, ",".join(tasks)) for job, tasks in spec.items())
        self._servers = [subprocess.Popen([MUSTER, "serve", "--cluster", text, "--job", "ps", "--task", str(task)],
                                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                         for task in range(servers)]
        self._workers = [subprocess.Popen([PYTHON, PROGRAM, "muster:worker", str(task), json.dumps(spec), str(SECONDS)],
                                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                          text=True) for task in range(workers)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self._workers + self._servers:
            process.kill()
            process.wait()

    def _all(self, begins):
        lines = []
        for worker in self._workers:
            line = worker.stdout.readline()
            if not line.startswith(begins):
                sys.exit("a worker ended early")
            lines.append(line)
        return lines

    def _go(self):
        for worker in self._workers:
            worker.stdin.write("go\n")
            worker.stdin.flush()

    def steps_per_second(self):
        self._all("connected")
        self._go()
        self._all("ready")
        self._go()
        return sum(json.loads(line)["value"] for line in self._all("{"))


def measure_workers():
    lines = {}
    for servers in SERVERS:
        for workers in WORKERS:
            best = 0
            for _ in range(2):
                with _Cluster(servers, workers) as cluster:
                    best = max(best, cluster.steps_per_second())
            lines.setdefault("%d ps" % servers, []).append((workers, best))
            print("workers      %d ps, %d workers %12.0f steps/s" % (servers, workers, best), flush=True)
    return lines


def measure_nodes():
    return {"%s, %s" % (graph, what): line
            for graph, name in (("chain", "chain_local"), ("fan", "fan_local"), ("fan on a ps", "fan_on_ps"))
            for what, line in _grow(name, NODES).items()}


def measure_tensors():
    return {what + plane: line for plane, fast in (("", True), (" over gRPC", False))
            for what, line in _grow("transfer", BYTES, fast).items()}


def measure_variables():
    return _grow("variables", VARIABLES)


def _count(value):
    return "{:,.0f}".format(value)


def _size(value):
    for unit, name in ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")):
        if value >= unit:
            return "%d %s" % (value / unit, name)
    return "%d B" % value


def _time(value):
    for unit, name in ((1, "s"), (1e-3, "ms"), (1e-6, "us")):
        if value >= 0.999 * unit:
            return "%.0f %s" % (value / unit, name)
    return "%.0f ns" % (value * 1e9)


# What is measured, and how it is drawn.
PARTS = {
    "workers": (measure_workers, "Steps of all workers together", "workers", "steps/s", _count, _count, WORKERS),
    "nodes": (measure_nodes, "Graphs of many small nodes", "nodes", "time", _count, _time, None),
    "tensors": (measure_tensors, "One tensor between ps and worker", "size", "time of a step", _size, _time,
                [4, 1 << 10, 16 << 10, 256 << 10, 4 << 20, 64 << 20]),
    "variables": (measure_variables, "Variables of 16 bytes on a ps", "variables", "time", _count, _time, None),
}


def draw(name, lines):
    _, title, x_name, y_name, x_label, y_label, ticks = PARTS[name]
    svg.plot(os.path.join(ROOT, "docs", "scaling_%s.svg" % name), title, x_name, y_name, lines, x_label, y_label, ticks)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="all, unless some are named: " + ", ".join(PARTS))
    parser.add_argument("--save", action="store_true", help="keep and draw what was measured")
    flags = parser.parse_args()
    unknown = set(flags.parts) - set(PARTS)
    if unknown:
        parser.error("no such part: " + ", ".join(sorted(unknown)))
    kept = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "commit": commit(),
            "machine": machine(), "scaling": {}}
    for name, part in PARTS.items():
        if not flags.parts or name in flags.parts:
            kept["scaling"][name] = part[0]()
            if flags.save:
                draw(name, kept["scaling"][name])
    kept["machine"]["load_after"] = os.getloadavg()[0]
    if flags.save:
        save(kept, "scaling")


if __name__ == "__main__":
    main()
