"""The parts of `make test-gpu` and how they run where there is no pytest."""
import subprocess
import sys

import card

WITHOUT_PYTEST = """
import runpy, sys
sys.modules["pytest"] = None
sys.path.insert(0, %r)
del sys.modules["pytest"]
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name == "pytest" and not any(entry.endswith("bare") for entry in sys.path):
            raise ImportError("hidden")
sys.meta_path.insert(0, Hidden())
for entry in [entry for entry in sys.path if "site-packages" in entry]:
    sys.path.remove(entry)
    sys.path.append(entry)
sys.argv[1:] = %r
runpy.run_path(%r, run_name="__main__")
"""


def _ran(*flags):
    folder = str(card.ROOT / "tests" / "gpu")
    program = WITHOUT_PYTEST % (folder, list(flags), folder + "/on_gpu.py")
    done = subprocess.run([sys.executable, "-c", program], env={**card.environment(), "MUSTER_TEST_CARD": ""}, capture_output=True,
                          text=True, timeout=200)
    return done.returncode, done.stdout + done.stderr


def _names(*flags):
    code, text = _ran("--list", *flags)
    assert code == 0, text
    return [line for line in text.splitlines() if not line.startswith("NOT TESTED")]


def test_shards_hold_everything_once():
    every = _names()
    assert len(every) == len(set(every)) > 60
    assert "test_clusters.test_workers_compute_on_their_cards[1]" in every
    parts = [_names("--shard", "%d/3" % i) for i in (1, 2, 3)]
    assert sorted(name for part in parts for name in part) == sorted(every)
    assert _ran("--list", "--shard", "4/3")[0] != 0


def test_failures_and_skips_are_told():
    # On the "real card", which this machine has not, but the driver of the emulated one is found.
    code, text = _ran("--only", "test_sessions.test_devices_and_placement")
    assert code == 0 and "passed" in text and "1 suites, 0 failed" in text, text
    code, text = _ran("--only", "test_card_errors.test_a_task_ends")
    assert code == 0 and "skipped: this is about the emulated card" in text, text
