"""make bench: Muster and TensorFlow side by side, in turns, as ratios (the machine is noisy; absolute times are not
comparable between runs)."""
import json
import os
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
]
ROUNDS = 3


def measure(interpreter, program, name):
    environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3")
    done = subprocess.run([interpreter, os.path.join(HERE, program), name], env=environment,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit("benchmark %s failed:\n%s" % (name, done.stderr[-2000:]))
    return json.loads(done.stdout.splitlines()[-1])["value"]


def main():
    muster = os.environ.get("MUSTER_PYTHON", os.path.join(ROOT, ".venv", "bin", "python"))
    tensorflow = os.environ.get("MUSTER_TF_PYTHON", os.path.join(ROOT, ".venv-tf", "bin", "python"))
    rows = [("workloads.py", *row) for row in WORKLOADS]
    rows += [("cluster_workloads.py", *row) for row in CLUSTER_WORKLOADS]
    chosen = sys.argv[1:] or [row[1] for row in rows]
    print("%-16s %14s %14s %8s %9s" % ("workload", "Muster", "TensorFlow", "ratio", "target"))
    for program, name, unit, scale, target in rows:
        if name not in chosen:
            continue
        ours, theirs = [], []
        for _ in range(ROUNDS):  # in turns, so that both see the same disturbances
            ours.append(measure(muster, program, "muster:" + name))
            theirs.append(measure(tensorflow, program, "tensorflow:" + name))
        a, b = statistics.median(ours), statistics.median(theirs)
        print("%-16s %11.2f %-2s %11.2f %-2s %8.3f %s %.3f" % (
            name, a * scale, unit, b * scale, unit, a / b, "<=" if a / b <= target else "> ", target), flush=True)


if __name__ == "__main__":
    main()
