"""The tests of this folder on the GPU of this machine, in shards, and the oracle's cases against TensorFlow's results.

    python tests/gpu/on_gpu.py                      all
    python tests/gpu/on_gpu.py --shard 2/6          the second of six parts that take about as long as each other
    python tests/gpu/on_gpu.py --only sessions      what has this in its name; --list names all
    python tests/gpu/on_gpu.py --record FOLDER      writes TensorFlow's results there, where there is a TensorFlow
    python tests/gpu/on_gpu.py --recorded FOLDER    takes them from there, where there is none

Needs neither pytest nor TensorFlow nor a build tree: MUSTER_COMMAND names the command of a packed build, and --kernels a file with
what `gpu_kernels list` has printed.
"""
import argparse
import contextlib
import importlib
import inspect
import io
import os
import pathlib
import shutil
import sys
import tempfile
import time
import traceback
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "oracle")]
try:
    import pytest  # noqa: F401
except ImportError:
    sys.path.append(str(HERE / "bare"))

import kernel_list  # noqa: E402
import coverage  # noqa: E402
import oracle  # noqa: E402

MODULES = ("test_sessions", "test_memory", "test_card_errors", "test_virtual_devices", "test_timelines", "test_settings", "test_fusion", "test_control_flow",
           "test_sparse_training", "test_libraries", "test_large_shapes", "test_clusters", "real_card")
SANITIZED = ("test_large_shapes", "test_sparse_training")
ORACLE_PARTS = 24
SANITIZER = "compute-sanitizer"


def problems(outcomes):
    """The differences that no list has."""
    known = [coverage.known_differences(), coverage.Entries(HERE / "known_differences.txt")]
    return ["%s: %s" % (case, text) for found in outcomes.values() for case, text in found
            if text is not None and all(entries.match_case(case) is None for entries in known)]


class Suite:
    """Something to run: `work` returns what it has to say, raises SkipTest, or any other exception where it fails."""

    def __init__(self, name, work):
        self.name, self.work = name, work


def _call(function, arguments):
    with tempfile.TemporaryDirectory() as folder:
        if "tmp_path" in inspect.signature(function).parameters:
            arguments = dict(arguments, tmp_path=pathlib.Path(folder))
        function(**arguments)


def tests_of(name, environment=None, prefix=""):
    """The functions of a module that are tests, without those that want other fixtures than a folder."""
    module = importlib.import_module(name)
    for test, function in sorted(vars(module).items()):
        if not test.startswith("test_") or not inspect.isfunction(function):
            continue
        parameter, values = _parameters(function)
        if set(inspect.signature(function).parameters) - {"tmp_path", parameter}:
            continue
        for i, value in enumerate(values):
            label = "%s%s.%s%s" % (prefix, name, test, "[%d]" % i if parameter else "")
            arguments = {parameter: value} if parameter else {}

            def work(function=function, arguments=arguments):
                with _environment(environment or {}):
                    _call(function, arguments)
            yield Suite(label, work)


def _parameters(function):
    if hasattr(function, "parametrized"):  # bare/pytest.py
        return function.parametrized
    for mark in getattr(function, "pytestmark", ()):
        if mark.name == "parametrize":
            return mark.args
    return None, [None]


@contextlib.contextmanager
def _environment(changes):
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def oracle_suites(ops, interpreter):
    for part in range(ORACLE_PARTS):
        def work(mine=ops[part::ORACLE_PARTS]):
            with _environment({"NVIDIA_TF32_OVERRIDE": "0"}):
                outcomes = oracle.evaluate(interpreter, mine)[1]
            found = problems(outcomes)
            assert not found, "\n".join(found)
            return "%d cases of %d ops" % (sum(map(len, outcomes.values())), len(mine))
        if ops[part::ORACLE_PARTS]:
            yield Suite("oracle.%d" % part, work)


def sanitizer_suites():
    tool = shutil.which(SANITIZER) or shutil.which(SANITIZER, path="/usr/local/cuda/bin")
    for check in ("memcheck", "racecheck"):
        if tool is None:
            def missing():
                raise unittest.SkipTest("there is no " + SANITIZER)
            yield Suite("sanitizer." + check, missing)
            continue
        wrapper = "%s --tool %s --error-exitcode 99 --target-processes all" % (tool, check)
        for module in SANITIZED:
            yield from tests_of(module, {"MUSTER_TEST_WRAPPER": wrapper}, "sanitizer.%s." % check)


def all_suites(options):
    lines = pathlib.Path(options.kernels).read_text().splitlines() if options.kernels else None
    interpreter = os.environ.get("MUSTER_TF_PYTHON") or str(kernel_list.ROOT / ".venv-tf" / "bin" / "python")
    suites = [suite for name in MODULES for suite in tests_of(name)]
    if options.kernels or kernel_list.program().exists():
        ops = sorted({op for op, _ in (kernel_list.of_muster() if lines is None else kernel_list.kernels(lines))})
        suites += oracle_suites([op for op in ops if not options.op or op in options.op], interpreter)
    else:
        print("NOT TESTED: the oracle's cases (--kernels FILE)", file=sys.stderr)
    return suites + list(sanitizer_suites())


def run(suites):
    failed = 0
    for suite in suites:
        start = time.monotonic()
        said = io.StringIO()
        try:
            with contextlib.redirect_stdout(said):
                outcome = "passed: " + (suite.work() or "")
        except unittest.SkipTest as reason:
            outcome = "skipped: %s" % reason
        except BaseException as error:  # pytest's own are not Exceptions
            if isinstance(error, KeyboardInterrupt):
                raise
            failed += 1
            outcome = "FAILED\n" + traceback.format_exc()[-4000:] + said.getvalue()[-2000:]
        print("%-70s %5.1f s  %s" % (suite.name, time.monotonic() - start, outcome), flush=True)
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shard", default="1/1")
    parser.add_argument("--only", default="")
    parser.add_argument("--op", action="append", help="of the oracle's cases, only this op's (may be repeated)")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--record", metavar="FOLDER")
    parser.add_argument("--recorded", metavar="FOLDER")
    parser.add_argument("--kernels", metavar="FILE")
    options = parser.parse_args()
    if options.record or options.recorded:
        oracle.FOLDER = pathlib.Path(options.record or options.recorded).resolve()
    if options.record:
        # TensorFlow's are kept, whatever ours are.
        for suite in all_suites(options):
            if suite.name.startswith("oracle."):
                with contextlib.suppress(AssertionError):
                    suite.work()
        for registry in oracle.FOLDER.glob("registry-*.pickle"):
            registry.rename(oracle.FOLDER / "registry.pickle")
        return 0
    os.environ["MUSTER_TEST_CARD"] = "real"
    number, count = map(int, options.shard.split("/"))
    if not 1 <= number <= count:
        parser.error("--shard %s: no such part" % options.shard)
    suites = [suite for suite in all_suites(options) if options.only in suite.name][number - 1::count]
    if options.list:
        print("\n".join(suite.name for suite in suites))
        return 0
    start = time.monotonic()
    failed = run(suites)
    print("%d suites, %d failed; %.0f s" % (len(suites), failed, time.monotonic() - start))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
