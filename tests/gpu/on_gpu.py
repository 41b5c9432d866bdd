"""The oracle's cases of ops that have kernels for GPUs, on the GPU of this machine, against TensorFlow's results.

    python tests/gpu/on_gpu.py [FILE]     FILE: what `gpu_kernels list` has printed, where that program is not built
"""
import os
import pathlib
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "oracle")]

import kernel_list  # noqa: E402
import coverage  # noqa: E402
import oracle  # noqa: E402


def problems(outcomes):
    """The differences that no list has."""
    known = [coverage.known_differences(), coverage.Entries(HERE / "known_differences.txt")]
    return ["%s: %s" % (case, text) for found in outcomes.values() for case, text in found
            if text is not None and all(entries.match_case(case) is None for entries in known)]


def main(path=None):
    lines = pathlib.Path(path).read_text().splitlines() if path else None
    ops = sorted({op for op, _ in (kernel_list.of_muster() if lines is None else kernel_list.kernels(lines))})
    start = time.monotonic()
    outcomes = oracle.evaluate(os.environ.get("MUSTER_TF_PYTHON") or str(kernel_list.ROOT / ".venv-tf" / "bin" / "python"), ops)[1]
    found = problems(outcomes)
    print("\n".join(found))
    print("%d cases of %d ops, %d differ; %.0f s" % (sum(map(len, outcomes.values())), len(ops), len(found), time.monotonic() - start))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
