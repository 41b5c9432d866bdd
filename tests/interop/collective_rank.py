"""One rank of a group of collectives: a server and a session of it, with Muster or with TensorFlow.

Reads a JSON object from the command line and answers lines on stdin: "run" gives the results of one step.
"""
import json
import sys

import numpy as np

ORDER = json.loads(sys.argv[1])
RANK, SIZE = ORDER["rank"], len(ORDER["cluster"]["worker"])

if ORDER["kind"] == "muster":
    import muster as tf
    from muster.ops import collective_ops
else:
    import tensorflow.compat.v1 as tf
    from tensorflow.python.ops import collective_ops
    tf.disable_v2_behavior()

COUNTS = (1, 40, 1000, 70001)
TYPES = ("float32", "float64", "int32", "int64", "float16")


def value(rank, dtype, count):
    """Small whole numbers: every type holds their sums."""
    return ((np.arange(count) * 7 + rank * 3) % 11).astype(dtype)


def build():
    fetches = {}
    instance = 0
    for dtype in TYPES:
        for count in COUNTS:
            x = tf.constant(value(RANK, dtype, count))
            for merge, final in (("Add", "Id"), ("Add", "Div"), ("Mul", "Id")):
                if (merge, final) == ("Mul", "Id") and (count != 40 or dtype == "float16"):
                    continue
                instance += 1
                fetches["%s %s %s %d" % (merge, final, dtype, count)] = collective_ops.all_reduce(
                    x, SIZE, 1, instance, merge, final)
        instance += 1
        x = tf.constant(value(RANK, dtype, 12).reshape(3, 4))
        fetches["gather %s" % dtype] = collective_ops.all_gather(x, SIZE, 1, instance)
        for source in range(SIZE):
            instance += 1
            x = tf.constant(value(RANK, dtype, 9))
            fetches["broadcast %s %d" % (dtype, source)] = (
                collective_ops.broadcast_send(x, x.shape, x.dtype, SIZE, 1, instance) if source == RANK
                else collective_ops.broadcast_recv([9], x.dtype, SIZE, 1, instance))
    instance += 1
    x = tf.constant(value(RANK, "float32", 300))
    fetches["subdivided"] = collective_ops.all_reduce(x, SIZE, 1, instance, "Add", "Id", subdiv_offsets=(0, 0))
    return fetches


def main():
    config = tf.ConfigProto()
    config.experimental.collective_group_leader = ORDER["leader"]
    server = tf.train.Server(tf.train.ClusterSpec(ORDER["cluster"]), job_name="worker", task_index=RANK,
                             config=config)
    with tf.Graph().as_default(), tf.device("/job:worker/task:%d/%s" % (RANK, ORDER.get("device", "cpu:0"))):
        fetches = build()
        with tf.Session(server.target, config=config) as session:
            print("ready", flush=True)
            for line in sys.stdin:
                if line.strip() != "run":
                    break
                try:
                    results = session.run(fetches)
                    reply = {name: result.ravel().astype("float64").tolist() for name, result in results.items()}
                except tf.errors.OpError as e:
                    reply = {"error": type(e).__name__, "message": str(e)}
                print(json.dumps(reply), flush=True)


main()
