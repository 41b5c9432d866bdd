"""Muster answers the recorded requests of TensorFlow 1.15.5 and 2.21 as the recordings do.

What differs on purpose is in deviations.txt. The recordings are in tests/golden/wire, the tools beside this file.
"""
import os
import pathlib
import subprocess
import warnings

import pytest
import replays

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PRESET = os.environ.get("MUSTER_BUILD", "release")
CASES = [(version, scenario, role) for version in replays.VERSIONS for scenario in replays.SCENARIOS
         for role in sorted(replays.roles(version, scenario))]


@pytest.fixture(scope="module")
def deviations():
    return replays.read_deviations(HERE / "deviations.txt")


@pytest.fixture(scope="module")
def tools(tf_python, request, tmp_path_factory):
    assert subprocess.run([tf_python, "-c", "import grpc"]).returncode == 0, "%s has no grpcio" % tf_python
    muster = ROOT / "build" / PRESET / "bin" / "muster"
    if not muster.exists():
        pytest.fail("%s is not built" % muster)
    running = replays.Tools(tf_python, str(muster))
    try:
        # All that this run will ask for starts now, a few at once.
        wanted = [item.callspec.params for item in request.session.items
                  if item.fspath == request.node.fspath and hasattr(item, "callspec")]
        for params in wanted:
            if "recorded" in params:
                running.recording(params["recorded"], tmp_path_factory.mktemp(params["recorded"]))
        for params in wanted:
            if "case" in params:
                running.replay(*params["case"])
        yield running
    finally:
        running.close()


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_replay(tools, deviations, case):
    for attempt in range(replays.ATTEMPTS):
        try:
            differences = tools.replay(*case).result() if attempt == 0 else tools.replay_again(*case)
            rest = replays.unexplained(differences, case[0], case[1], deviations)
        except AssertionError as error:
            rest = [str(error)]
        if not rest:
            return
        warnings.warn("%s, attempt %d: %s" % ("-".join(case), attempt + 1, "\n".join(rest)))
    pytest.fail("\n".join(rest))


@pytest.mark.parametrize("recorded", replays.RECORDED)
def test_recording(tools, deviations, recorded, tmp_path_factory):
    # How far a step has come when it fails is chance too.
    for attempt in range(replays.ATTEMPTS):
        try:
            if attempt > 0:
                folder = tools.record(recorded, tmp_path_factory.mktemp(recorded))
            else:
                folder = tools.recording(recorded, None).result()
            differences = tools.compare("2.21", recorded, folder)
            rest = replays.unexplained(differences, "2.21", "recorded:" + recorded, deviations)
        except AssertionError as error:
            rest = [str(error)]
        if not rest:
            return
        warnings.warn("%s, attempt %d: %s" % (recorded, attempt + 1, "\n".join(rest)))
    pytest.fail("\n".join(rest))


def test_every_deviation_has_a_reason(deviations):
    for deviation in deviations:
        assert deviation.why and deviation.where and deviation.patterns, deviation.name


def test_no_deviation_is_stale(tools, deviations, request):
    """The list may only shrink: what is no longer seen must go."""
    mine = [item for item in request.session.items if item.fspath == request.node.fspath]
    if sum(hasattr(item, "callspec") for item in mine) < len(CASES) + len(replays.RECORDED):
        pytest.skip("only some of the replays were asked for")
    unused = [deviation.name for deviation in deviations if not deviation.used and not deviation.is_chance]
    assert not unused, "no longer seen, to be removed from deviations.txt: %s" % ", ".join(unused)
