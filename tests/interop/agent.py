"""The other process of an interop test, in TensorFlow's interpreter or in Muster's.

    agent.py server JSON           a stock TensorFlow server: {"cluster": {...}, "job": ..., "task": ...}
    agent.py client stock|muster   runs calls from stdin, one JSON object per line, and answers in the same way
"""

import json
import os
import sys
import traceback

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
# The plain kernels are the judge, as in the oracle.
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))


def load(client):
    if client == "muster":
        import muster as tf
        return tf
    import tensorflow.compat.v1 as tf
    tf.disable_v2_behavior()
    return tf


def serve(arguments):
    tf = load("stock")
    server = tf.train.Server(arguments["cluster"], job_name=arguments["job"], task_index=arguments["task"])
    print("ready", server.target, flush=True)
    sys.stdin.read()  # the parent ends us by closing it, or dies
    os._exit(0)


def run_case(tf, client, call):
    import interop_cases
    context = interop_cases.Context(tf, client, call["kinds"], call["targets"])
    case = interop_cases.all_cases()[call["case"]]
    with tf.Graph().as_default():
        case.function(tf, context)


def run_reset(tf, client, call):
    for target in call["targets"].values():
        tf.Session.reset(target)


def run_train(tf, client, call):
    import interop_training
    return interop_training.losses(tf, call)


def run_saving(tf, client, call):
    import interop_saving
    return interop_saving.run(tf, call)


def run_lost(name):
    def run(tf, client, call):
        import interop_lost
        return getattr(interop_lost, name)(tf, client, call)

    return run


CALLS = {
    "case": run_case, "reset": run_reset, "train": run_train, "saving": run_saving,
    "open": run_lost("open_session"), "try": run_lost("try_step"),
    "close": run_lost("close"), "start_endless": run_lost("start_endless"), "end_endless": run_lost("end_endless"),
}


def answer_calls(client):
    # What libraries print to stdout must not get between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    tf = load(client)
    for line in sys.stdin:
        call = json.loads(line)
        try:
            reply = {"value": CALLS[call["kind"]](tf, client, call)}
        except BaseException:
            reply = {"error": traceback.format_exc()}
        answers.write(json.dumps(reply) + "\n")
        answers.flush()
    os._exit(0)


if __name__ == "__main__":
    if sys.argv[1] == "server":
        serve(json.loads(sys.argv[2]))
    else:
        answer_calls(sys.argv[2])
