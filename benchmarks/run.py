"""make bench: Muster and TensorFlow side by side, in turns, as ratios (the machine is noisy; absolute times are not
comparable between runs)."""
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
# (workload, unit, scale, what the ratio muster/tensorflow should be at most)
WORKLOADS = [
    ("null_step", "us", 1e6, 1 / 3),
    ("mnist_step", "us", 1e6, 1 / 1.5),
    ("cnn_step", "ms", 1e3, 1.2),
    ("matmul_2048", "ms", 1e3, 1 / 0.95),
    ("import_time", "s", 1, 1 / 5),
    ("memory", "MB", 1, 1 / 5),
]
ROUNDS = 3


def measure(interpreter, name):
    environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3")
    done = subprocess.run([interpreter, os.path.join(HERE, "workloads.py"), name], env=environment,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit("benchmark %s failed:\n%s" % (name, done.stderr[-2000:]))
    return json.loads(done.stdout.splitlines()[-1])["value"]


def main():
    muster = os.environ.get("MUSTER_PYTHON", os.path.join(ROOT, ".venv", "bin", "python"))
    tensorflow = os.environ.get("MUSTER_TF_PYTHON", os.path.join(ROOT, ".venv-tf", "bin", "python"))
    chosen = sys.argv[1:] or [w[0] for w in WORKLOADS]
    print("%-12s %14s %14s %8s %9s" % ("workload", "Muster", "TensorFlow", "ratio", "target"))
    for name, unit, scale, target in WORKLOADS:
        if name not in chosen:
            continue
        ours, theirs = [], []
        for _ in range(ROUNDS):  # in turns, so that both see the same disturbances
            ours.append(measure(muster, "muster:" + name))
            theirs.append(measure(tensorflow, "tensorflow:" + name))
        a, b = statistics.median(ours), statistics.median(theirs)
        print("%-12s %11.2f %-2s %11.2f %-2s %8.3f %s %.3f" % (
            name, a * scale, unit, b * scale, unit, a / b, "<=" if a / b <= target else "> ", target), flush=True)


if __name__ == "__main__":
    main()
