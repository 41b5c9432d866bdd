"""Two checkouts of Muster side by side, in turns, each built by `make build` in its own folder: does a change cost speed?

    before_after.py BEFORE [--after FOLDER] [--pairs N] [--save] [ROW...]

Prints the medians of N interleaved pairs, their ratio (above one: slower after) and the spread of the ratios of single
pairs. A row is called slower only where even the best pairs are: where the lower quartile of the ratios is above one."""
import argparse
import datetime
import os
import statistics
import sys

from run import ROOT, commit, machine, measure, save
from table import ROWS, shown


def parse_flags():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", help="the root of another checkout")
    parser.add_argument("rows", nargs="*", metavar="ROW", help="all, unless some are named")
    parser.add_argument("--after", default=ROOT, help="the root of a checkout; this one unless named")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--save", action="store_true", help="keep what was measured in benchmarks/results/")
    flags = parser.parse_args()
    unknown = set(flags.rows) - {row.name for row in ROWS}
    if unknown:
        parser.error("no such row: " + ", ".join(sorted(unknown)))
    if flags.pairs < 2:
        parser.error("--pairs must be at least 2: one pair has no spread")
    return flags


def compare(row, folders, pairs):
    """The row measured in both checkouts, in turns; the order within a pair alternates."""
    values = {side: [] for side in folders}
    for number in range(pairs):
        for side in (list(folders) if number % 2 == 0 else reversed(folders)):
            folder = folders[side]
            python = os.path.join(folder, ".venv", "bin", "python")
            values[side].append(measure(python, row, "muster", os.path.join(folder, "benchmarks")))
    ratios = sorted(after / before for before, after in zip(values["before"], values["after"]))
    low, _, high = statistics.quantiles(ratios, n=4, method="inclusive")
    medians = {side: statistics.median(measured) for side, measured in values.items()}
    ratio = medians["after"] / medians["before"]
    verdict = "slower" if low > 1 else "faster" if high < 1 else "same"
    print("%-18s %11.2f %11.2f %-8s %7.3f  (%.3f to %.3f)  %s" % (
        row.name, shown(row, medians["before"]), shown(row, medians["after"]), row.unit, ratio, low, high, verdict),
        flush=True)
    return {"name": row.name, "unit": row.unit, "ratio": ratio, "quartiles": [low, high], "verdict": verdict,
            "sides": {side: [shown(row, value) for value in measured] for side, measured in values.items()}}


def main():
    flags = parse_flags()
    folders = {"before": os.path.abspath(flags.before), "after": os.path.abspath(flags.after)}
    for folder in folders.values():
        if not os.path.exists(os.path.join(folder, "build", "release", "bin", "muster")):
            sys.exit("%s is not built: run make build there" % folder)
    kept = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "commit": commit(folders["after"]), "before": commit(folders["before"]), "machine": machine(),
            "pairs": flags.pairs, "rows": []}
    print("%-18s %11s %11s %-8s %7s  %s" % ("row", "before", "after", "", "ratio", "(quartiles of pairs)"))
    for row in ROWS:
        if not flags.rows or row.name in flags.rows:
            kept["rows"].append(compare(row, folders, flags.pairs))
    if flags.save:
        save(kept, "before_after")


if __name__ == "__main__":
    main()
