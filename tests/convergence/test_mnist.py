"""Training on the whole of MNIST reaches 0.96 in three epochs, however many workers there are and however they meet."""
import os
import pathlib
import re
import subprocess
import warnings

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MUSTER = ROOT / "build" / os.environ.get("MUSTER_BUILD", "release") / "bin" / "muster"
WANTED = 0.96
EPOCHS = 3
RUN_SECONDS = 300


@pytest.fixture(scope="module")
def mnist():
    """The folder of the four files, MUSTER_MNIST or the one beside the checkout; where CI is set it has to be there."""
    folder = pathlib.Path(os.environ.get("MUSTER_MNIST", ROOT.parent / "shared" / "data" / "mnist"))
    if (folder / "train-images-idx3-ubyte.gz").exists():
        return folder
    message = "full MNIST is not in %s: convergence is not tested (MUSTER_MNIST=FOLDER says where it is)" % folder
    if os.environ.get("CI"):
        pytest.fail(message)
    warnings.warn(message)
    pytest.skip(message)


def train(mnist, workers, *arguments):
    """What the chief measured at the begin and at the end: {when: (step, accuracy)}."""
    words = [MUSTER, "launch", "--ps", "1", "--workers", str(workers), HERE / "mnist_dense.py",
             "--data_dir=%s" % mnist]
    done = subprocess.run([str(w) for w in words] + list(arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=RUN_SECONDS)
    found = re.findall(r"(begin|end): step (\d+), test accuracy ([0-9.]+)", done.stdout)
    assert done.returncode == 0 and len(found) == 2, done.stdout[-3000:]
    return {when: (int(step), float(accuracy)) for when, step, accuracy in found}


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("mode", [(), ("--sync",)], ids=["async", "sync"])
def test_three_epochs(mnist, workers, mode):
    found = train(mnist, workers, "--epochs=%d" % EPOCHS, *mode)
    steps = 600 * EPOCHS // (workers if mode else 1)
    assert found["begin"][0] == 0 and found["begin"][1] < 0.3
    # Workers that see the last step a little late have made another one or two by then.
    assert steps <= found["end"][0] <= steps + 2 * workers
    assert found["end"][1] >= WANTED


@pytest.mark.parametrize("mode", [(), ("--sync",)], ids=["async", "sync"])
def test_stopped_and_resumed(mnist, tmp_path, mode):
    mode = ("--logdir=%s" % tmp_path,) + mode
    first = train(mnist, 2, "--epochs=1", *mode)
    assert first["end"][1] < 0.98
    second = train(mnist, 2, "--epochs=%d" % EPOCHS, *mode)
    # The other worker may end its last step after the chief has measured.
    assert 0 <= second["begin"][0] - first["end"][0] <= 2
    assert second["begin"][1] == pytest.approx(first["end"][1], abs=0.01)
    assert second["end"][1] >= WANTED
