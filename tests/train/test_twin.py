"""What muster/train/twin_test.cc is compared with is what Python does: twin.json holds the nodes of the Python twin
and the losses of TensorFlow 2.21."""
import json
import pathlib

import pytest

import twin

_SAID = json.loads((pathlib.Path(__file__).resolve().parent / "twin.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("run", twin.RUNS, ids=twin.title)
def test_nodes(run):
    import muster as tf

    assert twin.nodes(tf, run) == _SAID["nodes"][twin.title(run)]


@pytest.mark.parametrize("run", twin.RUNS, ids=twin.title)
def test_losses(run):
    import muster as tf

    assert twin.losses(tf, run) == pytest.approx(_SAID["losses"][twin.title(run)], rel=4e-6, abs=4e-6)
