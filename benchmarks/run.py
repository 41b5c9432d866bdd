"""make bench: Muster and TensorFlow side by side, in turns, as ratios (the machine is noisy; absolute times are not
comparable between runs)."""
import json
import os
import signal
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
# (workload, unit, scale, what the ratio muster/tensorflow should be at most). Bandwidths are given as times.
WORKLOADS = [
    ("null_step", "us", 1e6, 1 / 3),
    ("mnist_step", "us", 1e6, 1 / 1.5),
    ("cnn_step", "ms", 1e3, 1.2),
    ("matmul_2048", "ms", 1e3, 1 / 0.95),
    ("import_time", "s", 1, 1 / 5),
    ("memory", "MB", 1, 1 / 5),
    ("checkpoint_write", "ms", 1e3, 1),  # 256 MB; ours is on the disk at the end
    ("checkpoint_read", "ms", 1e3, 1),
]
CLUSTER_WORKLOADS = [
    ("null_outside", "us", 1e6, 0.7),
    ("null_from_worker", "us", 1e6, 0.7),
    ("pull_scalar", "us", 1e6, 0.7),
    ("pull_1mb", "us", 1e6, 1 / 1.2),
    ("pull_64mb", "ms", 1e3, 1 / 1.2),
    ("push_1mb", "us", 1e6, 1 / 1.2),
    ("push_64mb", "ms", 1e3, 1 / 1.2),
    ("pull_200", "us", 1e6, 0.7),
    ("start", "s", 1, 0.2),
    ("idle_memory", "MB", 1, 0.1),
    ("replicas_async", "us", 1e6, 1 / 1.5),  # a whole trainer, 1 ps and 2 workers: the time of a global step
    ("replicas_sync", "us", 1e6, 1 / 1.5),
    ("replicas_allreduce", "us", 1e6, 1 / 1.5),  # against TensorFlow's synchronous replicas
]
# Bytes of floats, summed over ranks that are processes; with 4 ranks (on few cores) only reported.
ALLREDUCE_SIZES = {"allreduce_4kb": 4 << 10, "allreduce_1mb": 1 << 20, "allreduce_64mb": 64 << 20}
ALLREDUCE_LIMIT = 180  # seconds
ROUNDS = 3


def measure(interpreter, program, name):
    environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3")
    done = subprocess.run([interpreter, os.path.join(HERE, program), name], env=environment,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit("benchmark %s failed:\n%s" % (name, done.stderr[-2000:]))
    return json.loads(done.stdout.splitlines()[-1])["value"]


def allreduce_times(command):
    """A row per size. Gloo has been seen to wait for ever with 4 ranks: what is there after some minutes counts."""
    process = subprocess.Popen(command, env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3"), stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        out, err = process.communicate(timeout=ALLREDUCE_LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        print("%s is stuck after %d s" % (" ".join(command), ALLREDUCE_LIMIT), file=sys.stderr)
    else:
        if process.returncode != 0:
            sys.exit("%s failed:\n%s" % (command[0], err[-2000:]))
    return {row["bytes"]: row for row in map(json.loads, filter(lambda line: line[:1] == "{", out.splitlines()))}


def compare_allreduce(names, tensorflow):
    """The mesh, Gloo over TCP (the best of its algorithms) and TensorFlow's ring, in turns."""
    print("%-18s %14s %14s %14s %8s %9s" % ("all-reduce", "Muster", "Gloo", "TensorFlow", "ratio", "target"))
    program = os.environ.get("MUSTER_ALLREDUCE_BENCH", os.path.join(ROOT, "build", "release", "bin", "allreduce_bench"))
    for ranks in ("2", "4"):
        sizes = [str(ALLREDUCE_SIZES[name]) for name in names]
        best = {}
        for _ in range(ROUNDS):
            for command in ([program], [tensorflow, os.path.join(HERE, "allreduce_tensorflow.py")]):
                for size, row in allreduce_times([*command, ranks, *sizes]).items():
                    for side in {"muster", "gloo", "tensorflow"} & row.keys():
                        best.setdefault(size, {}).setdefault(side, []).append(row[side])
        for name in names:
            if "muster" not in best.get(ALLREDUCE_SIZES[name], {}):
                print("%-18s not measured" % (name + "_" + ranks), flush=True)
                continue
            times = {side: statistics.median(values) for side, values in best[ALLREDUCE_SIZES[name]].items()}
            ratio = times["muster"] / min(time for side, time in times.items() if side != "muster")
            verdict = "reported" if ranks != "2" else "<= 1.000" if ratio <= 1 else ">  1.000"
            shown = ["%11.1f us" % times[side] if side in times else " not installed" for side in ("muster", "gloo", "tensorflow")]
            print("%-18s %s %s %s %8.3f %s" % (name + ("" if ranks == "2" else "_" + ranks), *shown, ratio, verdict), flush=True)


def main():
    muster = os.environ.get("MUSTER_PYTHON", os.path.join(ROOT, ".venv", "bin", "python"))
    tensorflow = os.environ.get("MUSTER_TF_PYTHON", os.path.join(ROOT, ".venv-tf", "bin", "python"))
    rows = [("workloads.py", *row) for row in WORKLOADS]
    rows += [("cluster_workloads.py", *row) for row in CLUSTER_WORKLOADS]
    chosen = sys.argv[1:] or [row[1] for row in rows] + list(ALLREDUCE_SIZES)
    print("%-18s %14s %14s %8s %9s" % ("workload", "Muster", "TensorFlow", "ratio", "target"))
    for program, name, unit, scale, target in rows:
        if name not in chosen:
            continue
        ours, theirs = [], []
        for _ in range(ROUNDS):  # in turns, so that both see the same disturbances
            ours.append(measure(muster, program, "muster:" + name))
            theirs.append(measure(tensorflow, program, "tensorflow:" + name))
        a, b = statistics.median(ours), statistics.median(theirs)
        print("%-18s %11.2f %-2s %11.2f %-2s %8.3f %s %.3f" % (
            name, a * scale, unit, b * scale, unit, a / b, "<=" if a / b <= target else "> ", target), flush=True)
    allreduce = [name for name in ALLREDUCE_SIZES if name in chosen]
    if allreduce:
        compare_allreduce(allreduce, tensorflow)


if __name__ == "__main__":
    main()
