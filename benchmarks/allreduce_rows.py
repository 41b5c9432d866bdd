"""All-reduce between processes: Muster's mesh, Gloo over TCP (the best of its algorithms), Open MPI and TensorFlow's
ring, in turns; those that are not installed are named."""
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile

from table import ALLREDUCE

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
BINARIES = os.path.join(ROOT, "build", "release", "bin")
LIMIT = 180  # seconds
OTHERS = ("gloo", "openmpi", "tensorflow")


def _commands(ranks, tensorflow):
    yield [os.environ.get("MUSTER_ALLREDUCE_BENCH", os.path.join(BINARIES, "allreduce_bench")), ranks]
    mpi = os.path.join(BINARIES, "allreduce_mpi")
    if shutil.which("mpirun") and os.path.exists(mpi):
        yield ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", ranks, mpi]
    yield [tensorflow, os.path.join(HERE, "allreduce_tensorflow.py"), ranks]


def _times(command, folder):
    """A row per size, and whether the command ended by itself: Gloo has been seen to hang with 4 ranks. After some minutes
    the command is killed, and the rows that it has printed are used."""
    process = subprocess.Popen(command, env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3"), stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, start_new_session=True, cwd=folder)
    is_stuck = False
    try:
        out, err = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        is_stuck = True
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        print("%s is stuck after %d s" % (" ".join(command), LIMIT), file=sys.stderr)
    if not is_stuck and process.returncode != 0:
        print("%s failed:\n%s" % (" ".join(command), err[-2000:]), file=sys.stderr)
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")], process.returncode == 0


def _measure(names, ranks, tensorflow, rounds, folder):
    """The times of each side, by size. A side that did not finish is not run again."""
    found, failed = {}, set()
    for _ in range(rounds):
        for command in _commands(ranks, tensorflow):
            if command[0] in failed:
                continue
            rows, has_ended = _times(command + [str(ALLREDUCE[name]) for name in names], folder)
            if not has_ended:
                failed.add(command[0])
            for row in rows:
                for side in {"muster", *OTHERS} & row.keys():
                    found.setdefault(row["bytes"], {}).setdefault(side, []).append(row[side])
    return found


def compare(names, tensorflow, rounds):
    """Prints a row per size and number of ranks; returns what is to be kept."""
    print("%-18s %12s %14s %14s %14s %8s" % ("all-reduce (us)", "Muster", "Gloo", "Open MPI", "TensorFlow", "ratio"))
    kept = []
    for ranks in ("2", "4"):
        with tempfile.TemporaryDirectory() as folder:
            found = _measure(names, ranks, tensorflow, rounds, folder)
        for name in names:
            sides = found.get(ALLREDUCE[name], {})
            label = name + ("" if ranks == "2" else "_" + ranks)
            if "muster" not in sides or len(sides) < 2:
                print("%-18s not measured" % label, flush=True)
                continue
            medians = {side: statistics.median(values) for side, values in sides.items()}
            ratio = medians["muster"] / min(value for side, value in medians.items() if side != "muster")
            cells = ["%14.1f" % medians[side] if side in medians else " not installed" for side in OTHERS]
            judged = "reported" if ranks != "2" else "ok   <=1" if ratio <= 1 else "MISS <=1"
            print("%-18s %12.1f %s %8.3f %s" % (label, medians["muster"], " ".join(cells), ratio, judged), flush=True)
            kept.append({"name": label, "unit": "us", "ratio": ratio, "sides": sides})
    return kept
