"""make bench: Muster and TensorFlow side by side, in turns, as ratios (the machine is noisy; absolute times are not
comparable between runs).

    run.py [--rounds N] [--save] [ROW...]

The ratio is that of the best values, the one in brackets that of the medians."""
import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys

import allreduce_rows
import tcp_rows
from table import ALLREDUCE, ROWS, TCP_ROWS, shown, verdict

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)


def parse_flags():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="ROW", help="all, unless some are named")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--save", action="store_true", help="keep what was measured in benchmarks/results/")
    flags = parser.parse_args()
    unknown = set(flags.rows) - {row.name for row in ROWS} - {row.name for row in TCP_ROWS} - set(ALLREDUCE)
    if unknown:
        parser.error("no such row: " + ", ".join(sorted(unknown)))
    return flags


def measure(interpreter, row, side, programs=HERE):
    environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", **({"MUSTER_FAST": row.fast} if row.fast else {}))
    done = subprocess.run([interpreter, os.path.join(programs, row.program), side + ":" + (row.of or row.name)], env=environment,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit("benchmark %s of %s failed:\n%s" % (row.name, side, done.stderr[-2000:]))
    return json.loads(done.stdout.splitlines()[-1])["value"]


def compare(row, interpreters, rounds):
    measured = {"muster": [], "tensorflow": []}
    for _ in range(rounds):  # in turns, so that both see the same disturbances
        for side, values in measured.items():
            values.append(measure(interpreters[side], row, side))

    def ratio(choose):
        ours, theirs = choose(measured["muster"]), choose(measured["tensorflow"])
        return theirs / ours if row.rate else ours / theirs
    best = ratio(min)
    print("%-24s %11.2f %11.2f %-7s %8.3f (%.3f)  %-14s %s" % (
        row.name, shown(row, min(measured["muster"])), shown(row, min(measured["tensorflow"])), row.unit, best,
        ratio(statistics.median), verdict(row, best, row.target), verdict(row, best, row.earlier)), flush=True)
    return {"name": row.name, "unit": row.unit, "ratio": best, "ratio_of_medians": ratio(statistics.median),
            "target": row.target, "rate": row.rate,
            "sides": {side: [shown(row, value) for value in values] for side, values in measured.items()}}


def machine():
    with open("/proc/cpuinfo") as info:
        model = next((line.split(":")[1].strip() for line in info if line.startswith("model name")), "unknown")
    return {"cpu": model, "cores": len(os.sched_getaffinity(0)), "kernel": platform.release(),
            "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2.0 ** 30, 1),
            "python": platform.python_version(), "load_before": os.getloadavg()[0]}


def commit(folder=ROOT):
    def git(*arguments):
        return subprocess.run(["git", "-C", folder, *arguments], stdout=subprocess.PIPE, text=True).stdout.strip()
    changed = git("status", "--porcelain", "--untracked-files=no")
    return git("rev-parse", "--short=12", "HEAD") + (" with changes" if changed else "")


def save(kept, kind=""):
    folder = os.path.join(HERE, "results")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "%s-%s%s.json" % (
        kept["date"][:16].replace(":", ""), kept["commit"].split()[0], kind and "-" + kind))
    with open(path, "w") as file:
        json.dump(kept, file, indent=1)
        file.write("\n")
    print("kept in " + os.path.relpath(path))


def main():
    flags = parse_flags()
    interpreters = {"muster": os.environ.get("MUSTER_PYTHON", os.path.join(ROOT, ".venv", "bin", "python")),
                    "tensorflow": os.environ.get("MUSTER_TF_PYTHON", os.path.join(ROOT, ".venv-tf", "bin", "python"))}
    kept = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "commit": commit(),
            "machine": machine(), "rounds": flags.rounds, "rows": []}
    print("%-24s %11s %11s %-7s %8s %8s %-14s %s" % ("row", "Muster", "TensorFlow", "", "ratio", "(median)", "target",
                                                    "earlier target"))
    for row in ROWS:
        if not flags.rows or row.name in flags.rows:
            kept["rows"].append(compare(row, interpreters, flags.rounds))
    tcp = [row for row in TCP_ROWS if not flags.rows or row.name in flags.rows]
    if tcp:
        kept["rows"] += tcp_rows.compare(tcp, lambda row: measure(interpreters["muster"], row, "muster"), flags.rounds)
    allreduce = [name for name in ALLREDUCE if not flags.rows or name in flags.rows]
    if allreduce:
        kept["rows"] += allreduce_rows.compare(allreduce, interpreters["tensorflow"], flags.rounds)
    if flags.save:
        save(kept)


if __name__ == "__main__":
    main()
