"""Summaries that Muster and TensorFlow compute alike: run with TensorFlow, it prints them.

    python summary_programs.py FILE.npz        the summaries of the arrays in that file, serialized, as hex in JSON
"""
import json
import sys

import numpy as np


def arrays():
    """Inputs by name: `h` histograms, `i` images, `a` audio; the second letter is the type's."""
    random = np.random.RandomState(7)
    made = {}
    for dtype in "fdeBbhHiIqQ":
        scale = 1 if dtype in "fde" else 100
        made["h_" + dtype] = np.abs(scale * random.randn(3, 50)).astype(np.dtype(dtype))
    made["h_wide"] = (random.randn(5000) * 10.0 ** random.randint(-14, 22, 5000)).astype(np.float64)
    made["h_limits"] = np.array([0.0, -0.0, 1e-12, 1.1e-12, -1e-12, 1e20, -1e20, 1e300, -1e300])
    made["h_empty"] = np.zeros([0, 3], np.float32)
    for dtype in (np.float32, np.float64, np.float16):
        letter = np.dtype(dtype).char
        for channels in (1, 3, 4):
            image = random.randn(2, 9, 11, channels)
            made["i_%s_negative_%d" % (letter, channels)] = image.astype(dtype)
            made["i_%s_positive_%d" % (letter, channels)] = np.abs(image * 3).astype(dtype)
            holes = image.copy()
            holes[0, 1, 2, 0], holes[0, 3, 3, -1], holes[1, 0, 0, 0] = np.nan, np.inf, -np.inf
            made["i_%s_holes_%d" % (letter, channels)] = holes.astype(dtype)
        made["i_%s_zero" % letter] = np.zeros([1, 2, 2, 1], dtype)
        made["i_%s_nan" % letter] = np.full([1, 2, 2, 3], np.nan, dtype)
    made["i_d_huge"] = np.array([1e300, 1.0, -1e300, 0.0]).reshape(1, 2, 2, 1)
    made["i_B"] = random.randint(0, 256, [5, 33, 17, 3]).astype(np.uint8)
    made["a_mono"] = (1.5 * random.randn(4, 50)).astype(np.float32)
    made["a_stereo"] = random.randn(1, 50, 2).astype(np.float32)
    made["a_special"] = np.array([[np.nan, np.inf, -np.inf, 1, -1, 0.5 / 32768, 1.5 / 32768, -0.5 / 32768]], np.float32)
    made["a_silence"] = np.zeros([1, 0], np.float32)
    return made


def summaries(tf, inputs):
    """{name: serialized summary}."""
    graph = tf.Graph()
    with graph.as_default():
        fetches = {}
        for name in sorted(inputs):
            value = tf.constant(inputs[name])
            if name.startswith("h"):
                fetches[name] = tf.summary.histogram(name, value)
            elif name.startswith("i"):
                fetches[name] = tf.summary.image(name, value, max_outputs=1 if name.endswith("3") else 4)
            else:
                fetches[name] = tf.summary.audio(name, value, 8000.4, max_outputs=2)
        for dtype in (tf.float16, tf.bfloat16, tf.float64, tf.int8, tf.uint64):
            fetches["s_" + dtype.name] = tf.summary.scalar("s_" + dtype.name, tf.cast(tf.constant(3.3), dtype))
        with tf.name_scope("outer"):
            fetches["text"] = tf.summary.text("text", tf.constant(["a", "b"]))
            fetches["tensor"] = tf.summary.tensor_summary("t!", tf.constant([[1, 2]]), "about it", display_name="shown",
                                                          family="fa mily")
        fetches["old"] = tf.raw_ops.TensorSummary(tensor=tf.constant([True, False]), name="node")
        fetches["merged"] = tf.summary.merge([fetches["text"], fetches["tensor"], fetches["s_int8"]], name="m")
        with tf.Session(graph=graph) as session:
            return session.run(fetches)


def main():
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()
    with np.load(sys.argv[1]) as inputs:
        print(json.dumps({name: value.hex() for name, value in summaries(tf, dict(inputs)).items()}))


if __name__ == "__main__":
    main()
