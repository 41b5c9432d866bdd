"""tf.test: TestCase with assertions on arrays and messages."""
import contextlib
import os
import random
import re
import sys
import tempfile
import unittest
from unittest import mock  # noqa: F401

import numpy as np

from muster import _muster, compat, errors
from muster.graph import default_stack, device_spec, framework
from muster.names import absent as _absent
from muster.session import session
from muster.variables import variables

__getattr__ = _absent.explain(__name__)

_temp_dir = None


def get_temp_dir():
    """A folder for the files of this run of the tests."""
    global _temp_dir
    if _temp_dir is None:
        root = os.environ.get("TEST_TMPDIR") or tempfile.gettempdir()
        os.makedirs(root, exist_ok=True)
        _temp_dir = tempfile.mkdtemp(prefix="tf_test_", dir=root)
    return _temp_dir


def main(argv=None):
    """Runs the tests of the program."""
    from muster import flags

    rest = flags.FLAGS(list(sys.argv if argv is None else argv), known_only=True)
    unittest.main(argv=rest)


def test_src_dir_path(relative_path):
    return os.path.join(os.environ.get("TEST_SRCDIR", ""), relative_path)


def _gpus():
    return [d for d in _muster.new_session(_muster.Graph()).list_devices() if d[1] == "GPU"]


def is_gpu_available(cuda_only=False, min_cuda_compute_capability=None):
    def capability(description):
        return tuple(int(part) for part in description.rpartition("compute capability: ")[2].split("."))

    found = _gpus()
    if min_cuda_compute_capability is not None:
        found = [gpu for gpu in found if capability(gpu[4]) >= tuple(min_cuda_compute_capability)]
    return bool(found)


def gpu_device_name():
    found = _gpus()
    return found[0][0][found[0][0].index("/device:"):] if found else ""


def is_built_with_cuda():
    """Whether there is a GPU: programs choose layouts by this that only GPUs have kernels for."""
    return is_gpu_available()


def is_built_with_gpu_support():
    return is_gpu_available()


def assert_equal_graph_def(actual, expected, checkpoint_v2=False):
    """Raises AssertionError unless both GraphDefs have the same nodes, in whatever order."""
    for graph in (actual, expected):
        if getattr(getattr(graph, "DESCRIPTOR", None), "full_name", None) != "tensorflow.GraphDef":
            raise TypeError("Expected tf.GraphDef for actual and expected, got %s" % type(graph).__name__)
    got = {node.name: node for node in actual.node}
    wanted = {node.name: node for node in expected.node}
    if set(got) != set(wanted):
        raise AssertionError("Found unexpected nodes: %s; missing: %s" % (
            sorted(set(got) - set(wanted)), sorted(set(wanted) - set(got))))
    for name in sorted(got):
        if got[name] != wanted[name]:
            raise AssertionError("Nodes named %r differ:\n%s\ninstead of\n%s" % (name, got[name], wanted[name]))


def _array(value):
    if isinstance(value, (framework.Tensor, variables.Variable)):
        found = framework.get_default_session()
        if found is None:
            raise ValueError("A tensor can only be compared inside a session: %s" % value)
        return np.asarray(found.run(value))
    return value if isinstance(value, np.ndarray) else np.array(value)


class TestCase(unittest.TestCase):
    """Each test starts with an empty default graph and the same seeds."""

    def __init__(self, methodName="runTest"):
        super(TestCase, self).__init__(methodName)
        self._tempdir = None
        self._cached_session = None

    def setUp(self):
        random.seed(87654321)
        np.random.seed(87654321)
        default_stack.graph_stack.clear()
        framework.reset_default_graph()
        framework.get_default_graph().seed = 87654321

    def tearDown(self):
        if self._cached_session is not None:
            self._cached_session.close()
            self._cached_session = None

    def get_temp_dir(self):
        if self._tempdir is None:
            self._tempdir = tempfile.mkdtemp(dir=get_temp_dir())
        return self._tempdir

    # --- Sessions. ---
    @staticmethod
    def _config(config):
        if config is None:
            from muster import _protos

            config = _protos.get("tensorflow.ConfigProto")()
            config.allow_soft_placement = True
            # Tests look at what they have built, not at what an optimizer makes of it.
            config.graph_options.optimizer_options.opt_level = -1
        return config

    @contextlib.contextmanager
    def session(self, graph=None, config=None, use_gpu=False, force_gpu=False):
        with session.Session(graph=graph, config=self._config(config)) as made:
            yield made

    @contextlib.contextmanager
    def cached_session(self, graph=None, config=None, use_gpu=False, force_gpu=False):
        """The same session for all calls in one test."""
        if self._cached_session is None:
            self._cached_session = session.Session(graph=graph, config=self._config(config))
        elif graph is not None and self._cached_session.graph is not graph:
            raise ValueError("The graph used to get the cached session is different than the one that was used to "
                             "create the session. Maybe create a new session with self.session()")
        with self._cached_session.graph.as_default(), self._cached_session.as_default():
            yield self._cached_session

    def test_session(self, graph=None, config=None, use_gpu=False, force_gpu=False):
        if self._testMethodName == "test_session":  # its name makes unittest take it for a test
            self.skipTest("Not a test.")
        if graph is None:
            return self.cached_session(graph, config)
        return self.session(graph, config)

    def evaluate(self, tensors):
        found = framework.get_default_session()
        if found is None:
            with self.session() as made:
                return made.run(tensors)
        return found.run(tensors)

    # --- Arrays. ---
    def assertShapeEqual(self, np_array, tf_tensor, msg=None):
        self.assertEqual(list(np_array.shape), tf_tensor.get_shape().as_list(), msg)

    def assertAllEqual(self, a, b, msg=None):
        a, b = _array(a), _array(b)
        self._same_shape(a, b, msg)
        same = np.asarray(a == b)
        if a.dtype.kind in "fc" and b.dtype.kind in "fc":
            same = np.logical_or(same, np.logical_and(np.isnan(a), np.isnan(b)))
        if not np.all(same):
            where = np.argwhere(~same)[:10].tolist()
            self.fail(self._formatMessage(msg, "Arrays are not equal, e.g. at %s:\n%s\ninstead of\n%s" % (where, a, b)))

    def assertNotAllEqual(self, a, b, msg=None):
        try:
            self.assertAllEqual(a, b)
        except AssertionError:
            return
        self.fail(self._formatMessage(msg, "The two values are equal at all elements."))

    def assertAllClose(self, a, b, rtol=1e-6, atol=1e-6, msg=None):
        """Also for lists, tuples and dicts of arrays."""
        if isinstance(a, dict) or isinstance(b, dict):
            self.assertTrue(isinstance(a, dict) and isinstance(b, dict), "only one of both is a dict")
            self.assertEqual(set(a), set(b), msg)
            for key in a:
                self.assertAllClose(a[key], b[key], rtol, atol, msg)
            return
        if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
            try:
                a, b = _array(a), _array(b)
                ragged = a.dtype == object or b.dtype == object
            except ValueError:
                ragged = True
            if ragged:
                self.assertEqual(len(a), len(b), msg)
                for one, other in zip(a, b):
                    self.assertAllClose(one, other, rtol, atol, msg)
                return
        a, b = _array(a), _array(b)
        self._same_shape(a, b, msg)
        if np.float16 in (a.dtype, b.dtype):
            rtol, atol = max(rtol, 1e-3), max(atol, 1e-3)
        if not np.allclose(a, b, rtol=rtol, atol=atol, equal_nan=True):
            worst = np.max(np.abs(np.asarray(a, np.complex128) - np.asarray(b, np.complex128)))
            self.fail(self._formatMessage(msg, "Arrays differ by up to %g (rtol %g, atol %g):\n%s\ninstead of\n%s"
                                          % (worst, rtol, atol, a, b)))

    def assertAllCloseAccordingToType(self, a, b, rtol=1e-6, atol=1e-6, float_rtol=1e-6, float_atol=1e-6,
                                      half_rtol=1e-3, half_atol=1e-3, bfloat16_rtol=1e-2, bfloat16_atol=1e-2,
                                      msg=None):
        a, b = _array(a), _array(b)
        kinds = {a.dtype.name, b.dtype.name}
        if kinds & {"float32", "complex64"}:
            rtol, atol = max(rtol, float_rtol), max(atol, float_atol)
        if "float16" in kinds:
            rtol, atol = max(rtol, half_rtol), max(atol, half_atol)
        if "bfloat16" in kinds:
            rtol, atol = max(rtol, bfloat16_rtol), max(atol, bfloat16_atol)
        self.assertAllClose(a, b, rtol, atol, msg)

    def assertNotAllClose(self, a, b, rtol=1e-6, atol=1e-6, msg=None):
        try:
            self.assertAllClose(a, b, rtol, atol)
        except AssertionError:
            return
        self.fail(self._formatMessage(msg, "The two values are close at all elements."))

    def assertArrayNear(self, farray1, farray2, err, msg=None):
        self.assertEqual(len(farray1), len(farray2), msg)
        for one, other in zip(farray1, farray2):
            self.assertNear(float(one), float(other), err, msg)

    def assertNDArrayNear(self, ndarray1, ndarray2, err, msg=None):
        self.assertTrue(np.linalg.norm(_array(ndarray1) - _array(ndarray2)) < err, msg)

    def assertNear(self, f1, f2, err, msg=None):
        self.assertTrue(f1 == f2 or abs(f1 - f2) <= err, "%f != %f +/- %f%s" % (
            f1, f2, err, " (%s)" % msg if msg is not None else ""))

    def assertAllGreater(self, a, comparison_target):
        self._all(a, lambda x: x > comparison_target, "> %s" % comparison_target)

    def assertAllLess(self, a, comparison_target):
        self._all(a, lambda x: x < comparison_target, "< %s" % comparison_target)

    def assertAllGreaterEqual(self, a, comparison_target):
        self._all(a, lambda x: x >= comparison_target, ">= %s" % comparison_target)

    def assertAllLessEqual(self, a, comparison_target):
        self._all(a, lambda x: x <= comparison_target, "<= %s" % comparison_target)

    def assertAllInRange(self, target, lower_bound, upper_bound, open_lower_bound=False, open_upper_bound=False):
        self._all(target, lambda x: (x > lower_bound) if open_lower_bound else (x >= lower_bound),
                  "above %s" % lower_bound)
        self._all(target, lambda x: (x < upper_bound) if open_upper_bound else (x <= upper_bound),
                  "below %s" % upper_bound)

    def assertAllInSet(self, target, expected_set):
        self._all(target, lambda x: np.isin(x, list(expected_set)), "in %s" % (expected_set,))

    def _all(self, value, holds, text):
        value = _array(value)
        self.assertTrue(np.all(holds(value)), "not all elements are %s: %s" % (text, value))

    def _same_shape(self, a, b, msg):
        if a.shape != b.shape:
            self.fail(self._formatMessage(msg, "Shape mismatch: expected %s, got %s." % (a.shape, b.shape)))

    # --- Messages and errors. ---
    def assertProtoEquals(self, expected_message_maybe_ascii, message, msg=None):
        expected = expected_message_maybe_ascii
        if isinstance(expected, (str, bytes)):
            from google.protobuf import text_format

            expected = text_format.Merge(compat.as_str(expected), type(message)())
        self.assertEqual(expected, message, msg)

    def assertStartsWith(self, actual, expected_start, msg=None):
        if not actual.startswith(expected_start):
            self.fail(self._formatMessage(msg, "%r does not start with %r" % (actual, expected_start)))

    @contextlib.contextmanager
    def assertRaisesWithPredicateMatch(self, exception_type, expected_err_re_or_predicate):
        """The block raises that type of error, and its text matches (or the predicate holds)."""
        try:
            yield
        except exception_type as e:
            wanted = expected_err_re_or_predicate
            text = e.message if isinstance(e, errors.OpError) else str(e)
            good = wanted(e) if callable(wanted) else re.search(wanted, text) is not None
            if not good:
                raise AssertionError("Exception of type %s: %s" % (type(e), e))
        else:
            self.fail("%s not raised" % getattr(exception_type, "__name__", exception_type))

    def assertRaisesOpError(self, expected_err_re_or_predicate):
        return self.assertRaisesWithPredicateMatch(errors.OpError, expected_err_re_or_predicate)

    def assertDeviceEqual(self, device1, device2, msg=None):
        self.assertEqual(device_spec.device_string(device1), device_spec.device_string(device2), msg)

    def checkedThread(self, target, args=None, kwargs=None):
        return _CheckedThread(self, target, args or (), kwargs or {})


class _CheckedThread(object):
    """A thread whose exception fails the test at join()."""

    def __init__(self, testcase, target, args, kwargs):
        import threading

        self._testcase, self._error = testcase, None

        def run():
            try:
                target(*args, **kwargs)
            except BaseException as e:
                self._error = e

        self._thread = threading.Thread(target=run)

    def start(self):
        self._thread.start()

    def join(self):
        self._thread.join()
        if self._error is not None:
            self._testcase.fail("Error in checkedThread: %r" % self._error)

    def is_alive(self):
        return self._thread.is_alive()


__all__ = ["TestCase", "assert_equal_graph_def", "get_temp_dir", "gpu_device_name", "is_built_with_cuda",
           "is_built_with_gpu_support", "is_gpu_available", "main", "mock", "test_src_dir_path"]
