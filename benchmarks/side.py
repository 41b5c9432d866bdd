"""Which of the two a program of this folder measures: `python PROGRAM.py muster:NAME` or `tensorflow:NAME` runs the
function NAME of the program and prints what it returns as one line of JSON."""
import json
import os
import sys

SIDE, NAME = sys.argv[1].split(":")
if SIDE == "muster":
    import muster as tf
else:
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MUSTER = os.environ.get("MUSTER_COMMAND", os.path.join(ROOT, "build", "release", "bin", "muster"))


def main(names):
    print(json.dumps({"name": NAME, "value": names[NAME]()}), flush=True)
    os._exit(0)  # servers of stock TensorFlow have no way to stop
