"""python_server.py SIDE CLUSTER: the ps of a cluster (JSON), as a Python user starts it. Says when it is ready."""
import json
import sys

if sys.argv[1] == "muster":
    import muster as tf
else:
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()

server = tf.train.Server(json.loads(sys.argv[2]), "ps", 0)
print("ready", flush=True)
server.join()
