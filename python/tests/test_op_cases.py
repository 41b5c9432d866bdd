"""Values and gradients of ops as TensorFlow 1.15.5 computes them."""
import re

import numpy as np
import pytest

import golden_cases

_CASES = {case["name"]: case for case in golden_cases.load("op_cases.json")}
# Sums of many terms differ in the last bits with the order of adding; the rest is right to 4 units in the last place.
_SUMS = re.compile(r"reduce_|cum|matmul|conv|pool|norm|moments|softmax|entropy|losses|l2_|lrn|segment|dropout|standardi|"
                   r"resize|contrast|brightness|bias_add|gather|tile|x\*y|x\+y|x/y|squared_diff|average|zero_fraction|"
                   r"div_no_nan|maximum|minimum|pow")

# TensorFlow 1.15 leaves the batch statistics of an inference step as it finds the memory.
_UNDEFINED = {("fused_batch_norm_infer", 1), ("fused_batch_norm_infer", 2)}
# What 1.15's approximation calls zero is below this; newer TensorFlow and we are more exact.
_ABSOLUTE = {"sigmoid": 1e-8}


def _array(entry):
    kind = entry["dtype"]
    values = entry["values"]
    if kind == "object" or kind.startswith("str"):
        array = np.array([v.encode("latin-1") for v in values], dtype=object)
    elif kind.startswith("float"):
        array = np.array([float.fromhex(v) for v in values], dtype=kind)
    else:
        array = np.array(values, dtype=kind)
    return array.reshape(entry["shape"])


def _compare(ours, entry, loose, what, absolute=0.0):
    theirs = _array(entry)
    ours = np.asarray(ours)
    assert ours.shape == theirs.shape, what
    if theirs.dtype.kind != "f":
        if theirs.dtype != object:
            assert ours.dtype == theirs.dtype, what
        np.testing.assert_array_equal(ours, theirs, err_msg=what)
        return
    assert ours.dtype == theirs.dtype, what
    if loose:
        finite = np.abs(theirs[np.isfinite(theirs)])
        largest = float(finite.max()) if finite.size else 0.0
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5 * max(largest, 1e-30), err_msg=what)
        return
    same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    with np.errstate(all="ignore"):
        close = np.abs(ours - theirs) <= np.maximum(4 * np.spacing(np.abs(theirs)), absolute)
    assert np.all(same | close), "%s: %s instead of %s" % (what, ours, theirs)


def _check(case):
    import muster as tf

    with tf.Graph().as_default(), tf.Session() as session:
        placeholders, feeds = {}, {}
        for name, entry in case["inputs"].items():
            value = _array(entry)
            dtype = tf.string if value.dtype == object else tf.as_dtype(value.dtype)
            placeholders[name] = tf.placeholder(dtype, value.shape)
            feeds[placeholders[name]] = value
        result = eval(case["code"], {"tf": tf, "np": np, "R": tf.raw_ops}, placeholders)
        outputs = list(result) if isinstance(result, (list, tuple)) else [result]
        # A random op gives the first numbers of its stream only once: everything is fetched in one step.
        fetches = {"outputs": outputs}
        gradients = case.get("gradients", {})
        if gradients:
            first = outputs[0]
            values = _array(case["outputs"][0])
            upstream = np.arange(1, values.size + 1, dtype=values.dtype).reshape(values.shape)
            names = list(gradients)
            found = tf.gradients(first, [placeholders[n] for n in names], grad_ys=[tf.constant(upstream)])
            fetches["gradients"] = [tf.convert_to_tensor(g) for g in found]
        got = session.run(fetches, feeds)
    loose = bool(_SUMS.search(case["code"]))
    assert len(got["outputs"]) == len(case["outputs"])
    for i, (ours, entry) in enumerate(zip(got["outputs"], case["outputs"])):
        if (case["name"], i) in _UNDEFINED:
            continue
        _compare(ours, entry, loose, "output %d" % i, _ABSOLUTE.get(case["name"], 0.0))
    for i, name in enumerate(gradients):
        _compare(got["gradients"][i], gradients[name], True, "gradient of %s" % name)


@pytest.mark.parametrize("name", list(_CASES))
def test_values(name):
    _check(_CASES[name])
