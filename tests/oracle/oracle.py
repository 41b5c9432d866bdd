"""Runs the table, or the cases of some ops, and says what differs.

    python tests/oracle/oracle.py [--op Sum --op Mean] [--write-gaps] [--verbose]

The TensorFlow interpreter is MUSTER_TF_PYTHON, or .venv-tf of the checkout.
"""

import argparse
import collections
import os
import pathlib
import sys
import time

import cases
import compare
import coverage
import graphs
import registry
import runner

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "oracle"


def evaluate(tf_python, ops=None, show_errors=False, only=None):
    """(needed keys, {key: [(case, difference)]}, number of cases). `only`: a function of a case."""
    known = registry.load(tf_python, runner.WORKER, FOLDER)
    table = [case for case in cases.all_cases(known, ops) if only is None or only(case)]
    programs = [graphs.program(case, known) for case in table]
    expected, actual = runner.Oracle(tf_python, FOLDER, ops is None).both(list({p["key"]: p for p in programs}.values()))
    outcomes = collections.defaultdict(list)
    for case, program in zip(table, programs):
        want, got = expected[program["key"]], actual[program["key"]]
        found = compare.difference(want, got, case.tolerance, case.text)
        if case.gradient and want[0] == "error" and want[1] == -1:
            continue  # TensorFlow's Python cannot build this gradient (index types it does not expect)
        if found is None and case.kind == "error" and want[0] != "error":
            found = "this is no error on TensorFlow: the table is wrong"
        if found is None and case.kind == "normal" and not case.gradient and want[0] != "values":
            found = f"TensorFlow refuses it, the table is wrong: {compare.describe(want)}"
        if found is None and case.kind != "error" and compare.missing_kernel(want):
            found = "TensorFlow has no such kernel: the table is wrong"
        if show_errors and want[0] == "error":
            print(f"{case}: {compare.describe(want)}")
        outcomes[(case.op, case.typing, case.kind)].append((case, found))
    needed = [key for key in coverage.required(known) if ops is None or key[0] in ops]
    return needed, outcomes, len(table)


def gap_lines(reasons, needed):
    """The gaps in as few lines as say the same: * where all types of an op and kind are gaps for one reason."""
    by_op = collections.defaultdict(list)
    for op, typing, kind in needed:
        by_op[op].append((typing, kind))
    for op in sorted(set(by_op) | {k[0] for k in reasons}):
        mine = {k: v for k, v in reasons.items() if k[0] == op}
        if not mine:
            continue
        if len(mine) == len(by_op[op]) and set(mine.values()) == {"no case"}:
            yield f"{op} * * no case yet"
            continue
        for kind in cases.KINDS:
            of_kind = {k: v for k, v in mine.items() if k[2] == kind}
            total = [t for t, k in by_op[op] if k == kind]
            if of_kind and len(of_kind) == len(total) and set(of_kind.values()) == {"no case"}:
                yield f"{op} * {kind} no case yet"
                continue
            for key, reason in sorted(of_kind.items()):
                yield f"{' '.join(key)} {_short(reason)}"


def _parts(line):
    op, typing, kind, reason = line.split(None, 3)
    return (op, typing, kind), reason


def _short(reason):
    return "no case yet" if reason == "no case" else reason.split(": ", 1)[-1][:150]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--op", action="append", help="only this op (may be repeated)")
    parser.add_argument("--write-gaps", action="store_true", help="rewrite known_gaps.txt")
    parser.add_argument("--errors", action="store_true", help="print how TensorFlow refuses each case that it refuses")
    parser.add_argument("--verbose", action="store_true", help="every case that differs, not one per key")
    options = parser.parse_args()
    tf_python = os.environ.get("MUSTER_TF_PYTHON") or str(ROOT / ".venv-tf" / "bin" / "python")
    start = time.monotonic()
    needed, outcomes, count = evaluate(tf_python, options.op, options.errors)
    failing = [(key, case, text) for key, found in sorted(outcomes.items()) for case, text in found if text is not None]
    differences = coverage.known_differences()
    if options.verbose:
        for _, case, text in failing:
            if differences.match_case(case) is None:
                print(f"{case}: {text}")
    _, reasons = coverage.judge(needed, outcomes, coverage.Entries(pathlib.Path(os.devnull)), differences)
    if options.write_gaps:
        head = [line for line in (coverage.HERE / "known_gaps.txt").read_text().splitlines() if line.startswith("#")]
        written = {entry[:3]: entry[3] for entry in coverage.known_gaps().entries}  # a reason once given stays
        lines = [" ".join(key + (written.get(key, reason),)) for key, reason in map(_parts, gap_lines(reasons, needed))]
        (coverage.HERE / "known_gaps.txt").write_text("\n".join(head + lines) + "\n", encoding="utf-8")
    print(f"{count} cases, {len(failing)} differ; {len(needed)} required, {len(reasons)} without a passing case; "
          f"{time.monotonic() - start:.0f} s")

if __name__ == "__main__":
    sys.exit(main())
