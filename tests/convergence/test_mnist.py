"""Training on MNIST reaches the wanted accuracy with any number of workers and each way of training.

DATA_DIR names the folder of the whole of MNIST. Without it the tests train on the 10,000 digits of data/digits, longer and
for less, and the run says that MNIST was not tested.
"""
import collections
import gzip
import os
import pathlib
import re
import struct
import subprocess

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MUSTER = ROOT / "build" / os.environ.get("MUSTER_BUILD", "release") / "bin" / "muster"
RUN_SECONDS = 300
MNIST_EXAMPLES = 60000

Data = collections.namedtuple("Data", "folder batches epochs wanted")


@pytest.fixture(scope="module")
def mnist(untested):
    """What is trained on: the folder, its batches of 100, how many epochs, and the accuracy they have to reach."""
    folder = pathlib.Path(os.environ.get("DATA_DIR") or ROOT / "data" / "digits")
    with gzip.open(folder / "train-labels-idx1-ubyte.gz") as file:
        _, examples = struct.unpack(">II", file.read(8))
    if examples >= MNIST_EXAMPLES:
        return Data(folder, examples // 100, epochs=3, wanted=0.96)
    untested("training on the whole of MNIST, which DATA_DIR=FOLDER names: trained on %d digits" % examples)
    return Data(folder, examples // 100, epochs=12, wanted=0.9)


def train(mnist, workers, *arguments):
    """What the chief measured at the begin and at the end: {when: (step, accuracy)}."""
    words = [MUSTER, "launch", "--ps", "1", "--workers", str(workers), HERE / "mnist_dense.py",
             "--data_dir=%s" % mnist.folder]
    done = subprocess.run([str(w) for w in words] + list(arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=RUN_SECONDS)
    found = re.findall(r"(begin|end): step (\d+), test accuracy ([0-9.]+)", done.stdout)
    assert done.returncode == 0 and len(found) == 2, done.stdout[-3000:]
    return {when: (int(step), float(accuracy)) for when, step, accuracy in found}


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("mode", [(), ("--sync",)], ids=["async", "sync"])
def test_training_converges(mnist, workers, mode):
    found = train(mnist, workers, "--epochs=%d" % mnist.epochs, *mode)
    steps = mnist.batches * mnist.epochs // (workers if mode else 1)
    # Other workers may have made steps before the chief measures.
    assert found["begin"][0] < steps / 10 and found["begin"][1] < found["end"][1]
    # Workers that see the last step a little late have made another one or two by then.
    assert steps <= found["end"][0] <= steps + 2 * workers
    assert found["end"][1] >= mnist.wanted


@pytest.mark.parametrize("mode", [(), ("--sync",)], ids=["async", "sync"])
def test_stopped_and_resumed(mnist, tmp_path, mode):
    mode = ("--logdir=%s" % tmp_path,) + mode
    first = train(mnist, 2, "--epochs=1", *mode)
    assert first["end"][1] < 0.98
    second = train(mnist, 2, "--epochs=%d" % mnist.epochs, *mode)
    # The other worker may end its last step after the chief has measured.
    assert 0 <= second["begin"][0] - first["end"][0] <= 2
    assert second["begin"][1] == pytest.approx(first["end"][1], abs=0.01)
    assert second["end"][1] >= mnist.wanted
