"""What TensorFlow 1.15's GPU build registers and Muster lacks.

    python tests/gpu/kernel_list.py --write     rewrites missing_kernels.txt
"""
import collections
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MISSING = HERE / "missing_kernels.txt"
NO_OP = "Muster has no such op"
NOT_YET = "not written yet"


def program():
    return ROOT / "build" / os.environ.get("MUSTER_BUILD", "release") / "tests" / "gpu_kernels"


def kernels(lines):
    """[(op, {attribute: type})]"""
    found = []
    for line in lines:
        if line.strip() and not line.startswith("#"):
            op, types = line.split("|")[:2]
            found.append((op, dict(part.split("=") for part in types.split(";") if part)))
    return found


def of_tensorflow():
    return kernels((ROOT / "tests" / "golden" / "gpu" / "kernels_tf115.txt").read_text().splitlines())


def _run(*words):
    return subprocess.run([str(program()), *words], check=True, capture_output=True, text=True).stdout.splitlines()


def of_muster():
    return kernels(_run("list"))


def ops_of_muster():
    return set(_run("ops"))


def missing(ours, ops):
    """{"Op types": reason}, with "Op *" where no kernel of the op is there."""
    by_op = collections.defaultdict(list)
    for op, types in ours:
        by_op[op].append(types)
    lacking = collections.defaultdict(list)
    total = collections.Counter()
    for op, types in of_tensorflow():
        total[op] += 1
        if not any(all(types.get(attr, type) == type for attr, type in own.items()) for own in by_op[op]):
            lacking[op].append(";".join("%s=%s" % item for item in sorted(types.items())))
    found = {}
    for op, types in sorted(lacking.items()):
        reason = NOT_YET if op in ops else NO_OP
        for name in ["*"] if len(types) == total[op] else sorted(set(types)):
            found["%s %s" % (op, name)] = reason
    return found


def known():
    entries = {}
    for line in MISSING.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            op, types, reason = line.split(" ", 2)
            entries["%s %s" % (op, types)] = reason
    return entries


def main():
    found = missing(of_muster(), ops_of_muster())
    said = known() if MISSING.exists() else {}
    head = ("# Kernels of TensorFlow 1.15's GPU build that Muster lacks: op, types (* for all of the op), reason. May only shrink.\n"
            "# Rewritten by kernel_list.py --write, which keeps the reasons.\n")
    MISSING.write_text(head + "".join("%s %s\n" % (name, said.get(name, reason)) for name, reason in sorted(found.items())))
    print("%d lines" % len(found))


if __name__ == "__main__":
    sys.exit(main())
