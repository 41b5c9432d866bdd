"""The client side of the scenarios, run by the stock TensorFlow under test.

usage (by wire_record.py): wire_scenarios.py LOG CLUSTER_JSON SCENARIO

Works with TensorFlow 1.15 and 2.x. What the client does and sees is written to
LOG; the cluster is owned by wire_record.py, which is asked over stdout and stdin to
kill and restart tasks. Names of nodes and the order of the statements are part
of the recorded traffic.
"""
import json
import os
import sys
import threading
import time
import traceback

import tensorflow
tf = tensorflow.compat.v1
if not tensorflow.__version__.startswith("1."):
    tf.disable_v2_behavior()
tf.logging.set_verbosity(tf.logging.ERROR)

P, W0 = "/job:ps/task:0", "/job:worker/task:0"
FW0 = ("/job:ps", "/job:worker/task:0")
LOG = None
KEEP = []  # sessions that must not be closed by the garbage collector


class Cluster(object):
    """Addresses of the tasks as each party sees them, and control over the tasks."""

    def __init__(self, description):
        self.real, self.proxied = description["real"], description["proxied"]

    def addr(self, src, dst):
        return "localhost:%d" % self.proxied[src + ">" + dst]

    def target(self, task):
        return "grpc://" + self.addr("client", task)

    def _ask(self, command, task):
        print("@%s %s" % (command, task), flush=True)
        assert sys.stdin.readline().strip() == "done"

    def kill(self, task):
        self._ask("kill", task)

    def restart(self, task):
        self._ask("restart", task)


def log(**event):
    event["t"] = time.time()
    LOG.write(json.dumps(event) + "\n")
    LOG.flush()


def note(text):
    log(ev="note", s=text)


def call(title, function, *args, **kwargs):
    """Calls a function; notes its start and its result or exception."""
    note("client: " + title)
    start = time.time()
    try:
        result = function(*args, **kwargs)
        text = repr(result)
        note("client: %s  =>  %s   (%.3f s)" % (title, text if len(text) < 400 else text[:200] + "...", time.time() - start))
        return result
    except Exception as e:
        note("client: %s  raised %s (code %s) after %.3f s\n%s" % (
            title, type(e).__name__, getattr(e, "error_code", None), time.time() - start, getattr(e, "message", str(e))))
        return e


def cfg(*filters, **fields):
    return tf.ConfigProto(device_filters=list(filters), **fields)


def e_errors(c):
    with tf.device(P):
        shp = tf.placeholder(tf.int32, [None], name="shp")
        x = tf.placeholder(tf.float32, [None], name="x")
        bad = tf.reshape(x, shp, name="bad")
        v = tf.Variable([1.0, 2.0], name="ve")
    with tf.device(W0):
        out = tf.identity(bad, name="out")
        r = tf.identity(v, name="r")
    s = tf.Session(c.target("worker:1"))
    call("run(out, {x: [1, 2, 3], shp: [2, 2]})", s.run, out, {x: [1, 2, 3], shp: [2, 2]})
    call("run(r) on an uninitialised variable", s.run, r)
    call("run(out, ...) after the errors, correct shape", s.run, out, {x: [1, 2, 3, 4], shp: [2, 2]})
    s.close()
    s = tf.Session(c.target("worker:0"), config=cfg(*FW0))
    call("same error with worker:0 as master", s.run, out, {x: [1, 2, 3], shp: [2, 2]})
    with tf.device("/job:ps/task:7"):
        nowhere = tf.identity(x, name="nowhere")
    call("run(nowhere): placed on a task that does not exist (ExtendSession fails)", s.run, nowhere, {x: [1]})
    call("run(out) in the same session after that", s.run, out, {x: [1, 2, 3, 4], shp: [2, 2]})
    s.close()
    s = tf.Session(c.target("worker:0"), config=cfg(*FW0))
    call("run(nowhere): CreateSession fails", s.run, nowhere, {x: [1]})
    s.close()


def l_clusterspec(c):
    cd = tf.train.ClusterSpec({"boss": ["localhost:%d" % c.real["worker:1"]], "alpha": [c.addr("peer", "ps:0")], "beta": [c.addr("peer", "worker:0")]}).as_cluster_def()
    with tf.device("/job:alpha/task:0"):
        v = tf.Variable([1.0, 2.0], name="vl")
    with tf.device("/job:beta/task:0"):
        r = tf.identity(v, name="r")
    conf = tf.ConfigProto(cluster_def=cd)
    init = tf.global_variables_initializer()
    s = tf.Session(c.target("worker:1"), config=conf)
    call("run(init)", s.run, init)
    call("run(r)", s.run, r)
    d = s.list_devices()
    note("client: list_devices() => %s" % [x.name for x in d])
    s2 = tf.Session(c.target("worker:1"), config=conf)
    call("run(r) in a second propagated session", s2.run, r)
    s2.close()
    s.close()
    bad = tf.ConfigProto(cluster_def=tf.train.ClusterSpec({"boss": ["localhost:1"], "alpha": [c.addr("peer", "ps:0")]}).as_cluster_def())
    s = tf.Session(c.target("worker:1"), config=bad)
    call("master not in cluster_def", s.run, init)
    s.close()
    same = tf.ConfigProto(cluster_def=tf.train.ClusterSpec({"worker": {1: "localhost:%d" % c.real["worker:1"]}, "alpha": [c.addr("peer", "ps:0")]}).as_cluster_def())
    s = tf.Session(c.target("worker:1"), config=same)
    call("job and index as booted", s.run, init)
    s.close()


def m_sync(c):
    errs = []

    def worker(i):
        try:
            g = tf.Graph()
            with g.as_default():
                with tf.device(tf.train.replica_device_setter(ps_tasks=1, worker_device="/job:worker/task:%d" % i)):
                    gs = tf.train.get_or_create_global_step()
                    w = tf.get_variable("w", [2], initializer=tf.zeros_initializer())
                    x = tf.placeholder(tf.float32, [2], name="x")
                    loss = tf.reduce_sum(w * x, name="loss")
                    opt = tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(0.5), replicas_to_aggregate=2, total_num_replicas=2)
                    train = opt.minimize(loss, global_step=gs)
                    hook = opt.make_session_run_hook(i == 0)
                conf = tf.ConfigProto(device_filters=["/job:ps", "/job:worker/task:%d" % i])
                creator = (tf.train.ChiefSessionCreator if i == 0 else tf.train.WorkerSessionCreator)(master=c.target("worker:%d" % i), config=conf)
                s = tf.train.MonitoredSession(creator, hooks=[hook])
                note("client: worker %d session ready" % i)
                bar.wait()
                for k in range(2):
                    call("worker %d step %d" % (i, k), s.run, [train, gs], {x: [1.0 + i, 2.0]})
                call("worker %d w" % i, s.run, w)
                bar.wait()
        except Exception as e:
            errs.append(traceback.format_exc())
            bar.abort()
    bar = threading.Barrier(2)
    th = [threading.Thread(target=worker, args=(i,)) for i in (0, 1)]
    th[0].start()
    time.sleep(3)
    th[1].start()
    for t in th:
        t.join(90)
    if errs:
        note("\n".join(errs)[-1500:])


# ---- tasks killed and restarted
def kill_graph():
    with tf.device(P):
        v = tf.Variable([1.0, 2.0], name="v")
        q = tf.FIFOQueue(4, [tf.float32], shapes=[[]], name="q")
        deq = q.dequeue(name="deq")
    with tf.device(W0):
        r = tf.identity(v, name="r")
        out = tf.identity(deq, name="out")
    return (v, r, out, tf.global_variables_initializer())


def TO(ms):
    return tf.RunOptions(timeout_in_ms=ms)


def kept_session(c, **k):
    s = tf.Session(c.target("worker:0"), config=cfg(*FW0, **k))
    KEEP.append(s)
    return s


def i_ps_killed_idle(c):
    v, r, out, init = kill_graph()
    s = kept_session(c)
    s.run(init)
    call("run(r)", s.run, r)
    time.sleep(0.5)
    note("ps:0 is killed (SIGKILL)")
    c.kill("ps:0")
    time.sleep(1)
    call("run(r, timeout 6 s), ps:0 down", s.run, r, options=TO(6000))
    call("run(r, timeout 6 s) again, ps:0 still down", s.run, r, options=TO(6000))
    note("ps:0 is started again")
    c.restart("ps:0")
    note("ps:0 is up")
    time.sleep(1.5)
    call("run(r, timeout 10 s) in the old session", s.run, r, options=TO(10000))
    call("run(r, timeout 10 s) in the old session, again", s.run, r, options=TO(10000))
    call("close()", s.close)
    s = kept_session(c, operation_timeout_in_ms=10000)
    call("run(r) in a new session", s.run, r)
    s.close()


def i_ps_killed_idle_wait(c):
    v, r, out, init = kill_graph()
    s = tf.Session(c.target("worker:0"), config=cfg(*FW0))
    s.run(init)
    call("run(r)", s.run, r)
    time.sleep(0.5)
    note("ps:0 is killed (SIGKILL)")
    c.kill("ps:0")
    time.sleep(1)
    th = threading.Thread(target=lambda: call("run(r, no timeout), ps:0 down", s.run, r))
    th.start()
    time.sleep(8)
    note("ps:0 is started again" + ("" if th.is_alive() else " (the run has already ended)"))
    c.restart("ps:0")
    note("ps:0 is up")
    th.join(40)
    if th.is_alive():
        note("the run is still blocked 40 s later")


def i_ps_killed_mid_step(c):
    v, r, out, init = kill_graph()
    s = kept_session(c)
    s.run(init)
    th = threading.Thread(target=lambda: call("run(out) blocked in a dequeue on ps:0", s.run, out))
    th.start()
    time.sleep(1.5)
    note("ps:0 is killed (SIGKILL)")
    c.kill("ps:0")
    th.join(15)
    if th.is_alive():
        note("still blocked 15 s later; ps:0 is started again")
        c.restart("ps:0")
        note("ps:0 is up")
        th.join(30)
        if th.is_alive():
            note("still blocked 30 s after the restart")
    else:
        th2 = threading.Thread(target=lambda: call("close(), ps:0 down", s.close))
        th2.start()
        th2.join(12)
        note("close() is still blocked after 12 s" if th2.is_alive() else "close() has returned")
        note("ps:0 is started again")
        c.restart("ps:0")
        note("ps:0 is up")
        th2.join(20)


def i_ps_restarted_idle(c):
    v, r, out, init = kill_graph()
    s = kept_session(c)
    s.run(init)
    call("run(r)", s.run, r)
    note("ps:0 is killed and started again, no step meanwhile")
    c.kill("ps:0")
    c.restart("ps:0")
    time.sleep(2.5)
    call("run(r, timeout 10 s)", s.run, r, options=TO(10000))
    call("run(r, timeout 10 s) again", s.run, r, options=TO(10000))
    call("run(v.initializer, timeout 10 s): a graph not registered before", s.run, v.initializer, options=TO(10000))
    call("close()", s.close)


def i_master_killed(c):
    v, r, out, init = kill_graph()
    s = kept_session(c)
    s.run(init)
    th = threading.Thread(target=lambda: call("run(out) blocked, worker:0 is the master", s.run, out))
    th.start()
    time.sleep(1.5)
    note("worker:0 is killed (SIGKILL)")
    c.kill("worker:0")
    th.join(15)
    if th.is_alive():
        note("still blocked 15 s later")
    note("worker:0 is started again")
    c.restart("worker:0")
    time.sleep(2)
    note("worker:0 is up")
    th.join(10)
    call("run(r, timeout 10 s) in the old session", s.run, r, options=TO(10000))
    s2 = kept_session(c, operation_timeout_in_ms=10000)
    call("run(r) in a new session: the variable on ps:0 survived", s2.run, r)
    s2.close()


def i_create_ps_down(c):
    v, r, out, init = kill_graph()
    note("ps:0 is killed (SIGKILL)")
    c.kill("ps:0")
    time.sleep(0.5)
    s = kept_session(c, operation_timeout_in_ms=4000)
    call("run(r), operation_timeout_in_ms = 4000", s.run, r)
    s9 = kept_session(c)
    th = threading.Thread(target=lambda: call("run(init) in a session without timeout", s9.run, init))
    th.start()
    time.sleep(2)
    note("ps:0 is started again")
    c.restart("ps:0")
    th.join(30)
    note("blocked still" if th.is_alive() else "done")


def i_close_ps_down(c):
    v, r, out, init = kill_graph()
    s = kept_session(c)
    s.run(init)
    call("run(r)", s.run, r)
    time.sleep(0.5)
    note("ps:0 is killed (SIGKILL)")
    c.kill("ps:0")
    time.sleep(1)
    call("run(r, timeout 3 s), ps:0 down", s.run, r, options=TO(3000))
    th = threading.Thread(target=lambda: call("close(), ps:0 down", s.close))
    th.start()
    th.join(15)
    note("close() is still blocked after 15 s" if th.is_alive() else "close() has returned")
    note("ps:0 is started again")
    c.restart("ps:0")
    note("ps:0 is up")
    th.join(20)


def i_close_idle_ps_down(c):
    v, r, out, init = kill_graph()
    s = kept_session(c)
    s.run(init)
    call("run(r)", s.run, r)
    time.sleep(0.5)
    note("ps:0 is killed (SIGKILL)")
    c.kill("ps:0")
    time.sleep(1)
    th = threading.Thread(target=lambda: call("close() with no step since, ps:0 down", s.close))
    th.start()
    th.join(15)
    note("close() is still blocked after 15 s" if th.is_alive() else "close() has returned")
    note("ps:0 is started again")
    c.restart("ps:0")
    note("ps:0 is up")
    th.join(20)


def main():
    global LOG
    LOG = open(sys.argv[1], "w")
    description = json.loads(sys.argv[2])
    cluster = Cluster(description)
    log(ev="addr", task_at=description["task_at"], version=tensorflow.__version__)
    for name in sys.argv[3:]:
        log(ev="begin", s=name)
        try:
            with tf.Graph().as_default():
                globals()[name](cluster)
        except Exception:
            note("the scenario failed\n" + traceback.format_exc()[-1500:])
            print("%s FAILED\n%s" % (name, traceback.format_exc()), flush=True)
        time.sleep(0.5)
        log(ev="end", s=name)
        print("@end " + name, flush=True)
    os._exit(0)  # blocked sessions must not delay the end


if __name__ == "__main__":
    main()
