"""muster.data.ShardQueue in one process; tests/recovery has it on clusters whose tasks die."""
import json
import os
import re
import threading

import pytest


@pytest.fixture(autouse=True)
def fresh_graph():
    import muster as tf

    tf.reset_default_graph()


def test_every_shard_of_every_epoch_once():
    import muster as tf

    queue = tf.data.ShardQueue(["a", b"\xff", "c"], epochs=2)
    with tf.Session() as session:
        seen = [(shard.epoch, shard.index, shard.value) for shard in queue.shards(session)]
        assert seen == [(e, i, v) for e in range(2) for i, v in enumerate([b"a", b"\xff", b"c"])]
        assert list(queue.shards(session)) == []
        report = queue.report(session)
    assert queue.num_shards == 3 and queue.name == "shard_queue"
    assert (report["done"], report["handed"], report["repeated"], report["returned"]) == (6, 6, 0, 0)
    assert report["workers"][0]["worker"] == "/job:localhost/replica:0/task:0"


def test_a_meta_graph_with_a_queue_is_written_in_silence(monkeypatch):
    import muster as tf

    said = []
    monkeypatch.setattr(tf.logging, "warning", lambda *words: said.append(words))
    monkeypatch.setattr("muster.tf_logging.warning", lambda *words: said.append(words))
    tf.data.ShardQueue(["a"])
    meta_graph = tf.train.export_meta_graph()
    assert said == []
    assert tf.GraphKeys.RESOURCES not in meta_graph.collection_def


def test_a_number_of_shards_in_the_order_of_a_seed():
    import muster as tf

    def order(seed):
        with tf.Graph().as_default():
            queue = tf.data.ShardQueue(20, shuffle=True, seed=seed)
            with tf.Session() as session:
                return [int(shard.value) for shard in queue.shards(session)]

    assert order(1) == order(1) != order(2)
    assert sorted(order(1)) == list(range(20))
    assert sorted(order(None)) == list(range(20))


def test_a_loop_that_is_left_gives_its_shard_back():
    import muster as tf

    queue = tf.data.ShardQueue(3)
    with tf.Session() as session:
        for shard in queue.shards(session):
            if shard.index == 1:
                break
        assert queue.report(session)["held"] == []
        assert [shard.index for shard in queue.shards(session)] == [1, 2]
        report = queue.report(session)
    assert report["done"] == 3 and report["returned"] == 1
    assert report["returned_shards"][0]["why"] == "given back"


def test_others_wait_for_the_last_shards_of_an_epoch():
    import muster as tf

    queue = tf.data.ShardQueue(2)
    with tf.Session() as session:
        first = queue.take_from(session)
        second = queue.take_from(session)
        seen = []
        waits = threading.Thread(target=lambda: seen.extend(queue.shards(session)))
        waits.start()
        while not queue.report(session)["waiting"]:
            pass
        queue.renew_at(session)
        assert queue.done_at(session, first) and queue.done_at(session, first)
        queue.give_back(session, second)
        waits.join()
        assert [shard.index for shard in seen] == [second.index]
        assert not queue.done_at(session, second)  # another one has done it
        report = queue.report(session)
    assert report["repeated"] == 1
    assert report["repeated_shards"][0]["index"] == second.index


def test_tensors():
    import muster as tf

    queue = tf.data.ShardQueue(["a", "b"], name="files")
    shard = queue.take()
    with tf.control_dependencies([tf.identity(shard.value)]):
        done = queue.done(shard.ticket)
    held = queue.renew([shard.ticket])
    with tf.Session() as session:
        value, counts = session.run([shard.value, done])
        assert value == b"a" and counts
        assert session.run(held).tolist() == [True]
        report = queue.report(session)
    assert report["name"] == "files" and report["done"] == 1 and len(report["held"]) == 1


def test_saved_and_restored_like_a_variable(tmp_path):
    import muster as tf

    weight = tf.get_variable("weight", initializer=tf.zeros([2]))
    resource = tf.get_variable("resource", initializer=tf.zeros([2]), use_resource=True)
    queue = tf.data.ShardQueue(4)
    saver = tf.train.Saver()
    # Its state is read before the variables: no shard may be done whose updates are not there.
    save, = [op for op in tf.get_default_graph().get_operations() if op.type == "SaveV2"]
    state, = [op for op in tf.get_default_graph().get_operations() if op.type == "MusterShardState"]
    reads = [t.op for t in save.inputs[3:] if t.op is not state]
    assert len(reads) == 2
    for read in reads:
        before = [read] + [t.op for t in read.inputs] + [t.op for i in read.inputs for t in i.op.inputs]
        assert any(state in op.control_inputs for op in before), read
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        taken = [queue.take_from(session) for _ in range(2)]
        queue.done_at(session, taken[0])
        path = saver.save(session, str(tmp_path / "model"))
        queue.done_at(session, taken[1])
    assert dict(tf.train.list_variables(path)) == {"shard_queue": [], "weight": [2], "resource": [2]}
    assert json.loads(tf.train.load_variable(path, "shard_queue"))["version"] == 1
    with tf.Session() as session:
        saver.restore(session, path)
        assert not queue.done_at(session, taken[1])  # the checkpoint has not seen it
        assert sorted(shard.index for shard in queue.shards(session)) == [1, 2, 3]
        report = queue.report(session)
        assert (report["done"], report["returned"], report["restored"], report["outdated"]) == (4, 1, 1, 1)
        session.run(queue.initializer)
        assert queue.report(session)["done"] == 0
    with tf.Graph().as_default(), tf.Session() as session:
        other = tf.data.ShardQueue(5)
        with pytest.raises(tf.errors.FailedPreconditionError, match="the state is that of 4"):
            tf.train.Saver({"shard_queue": tf.get_collection(tf.GraphKeys.SAVEABLE_OBJECTS)[0]}).restore(session, path)
        assert other.report(session)["done"] == 0


def test_sessions_of_a_training_loop(tmp_path):
    import muster as tf

    def train(limit):
        with tf.Graph().as_default():
            more = tf.assign_add(tf.train.get_or_create_global_step(), 1)
            queue = tf.data.ShardQueue(5)
            seen = []
            with tf.train.MonitoredTrainingSession(checkpoint_dir=str(tmp_path), hooks=[queue.hook()]) as session:
                for shard in queue.shards(session):
                    if len(seen) == limit:
                        break
                    session.run(more)
                    seen.append(shard.index)
            return seen

    assert train(2) == [0, 1]
    assert train(10) == [2, 3, 4]
    assert train(10) == []


def test_a_model_that_outlives_its_session_keeps_its_queue():
    """Workers of an all-reduce have their variables, and the queue beside them, also in a new session."""
    import muster as tf

    class Lost(tf.train.SessionRunHook):
        runs = 0

        def after_run(self, run_context, run_values):
            self.runs += 1
            if self.runs == 2:
                raise tf.errors.AbortedError(None, None, "a task was lost")

    server = tf.train.Server.create_local_server()
    optimizer = tf.train.AllReduceOptimizer(tf.train.GradientDescentOptimizer(1.0))
    with tf.device("/job:local/task:0"):
        weight = tf.get_variable("weight", initializer=tf.zeros([2]))
        train = optimizer.minimize(-tf.reduce_sum(weight), global_step=tf.train.get_or_create_global_step())
        queue = tf.data.ShardQueue(4)
    lost = Lost()
    hooks = [optimizer.make_session_run_hook(server), queue.hook(), lost]
    with tf.train.MonitoredTrainingSession(server.target, hooks=hooks, log_step_count_steps=None) as session:
        seen = []
        for shard in queue.shards(session):
            session.run(train)
            seen.append(shard.index)
        report = queue.report(session)
    server.stop(0)
    assert lost.runs == 5 and seen == [0, 1, 2, 3]
    assert (report["done"], report["handed"], report["returned"], report["outdated"]) == (4, 4, 0, 0)


def test_where_it_lives():
    import muster as tf

    with tf.device(tf.train.replica_device_setter(1, worker_device="/job:worker/task:1")):
        assert tf.data.ShardQueue(1).handle.device == "/job:ps/task:0"
    with tf.device("/job:worker/task:2"):
        assert tf.data.ShardQueue(1).handle.device == "/job:worker/task:0"
        assert tf.data.ShardQueue(1, device="/job:data").handle.device == "/job:data"


@pytest.mark.parametrize("arguments", [dict(shards=[]), dict(shards=0), dict(shards=-1), dict(shards=1, epochs=-1),
                                       dict(shards=1, lease_secs=0)])
def test_wrong_arguments(arguments):
    import muster as tf

    with pytest.raises(ValueError):
        tf.data.ShardQueue(**arguments)


def test_the_example_of_the_documentation(root, tmp_path):
    import muster as tf

    text = (root / "docs" / "training.md").read_text(encoding="utf-8")
    section = text[text.index("## Shards of the data"):]
    program = re.search(r"```python\n(.*?)```", section, re.S).group(1)
    files = []
    for i in range(4):
        files.append(str(tmp_path / ("part%d.txt" % i)))
        with open(files[-1], "w") as out:
            out.write("1\n2\n")
    names = {"tf": tf, "files": files, "logdir": str(tmp_path / "model"), "server": type("S", (), {"target": ""}),
             "is_chief": True}
    exec(compile(program, "training.md", "exec"), names)
    assert names["account"]["done"] == 12 and names["account"]["repeated"] == 0
    assert os.path.exists(str(tmp_path / "model" / "checkpoint"))
