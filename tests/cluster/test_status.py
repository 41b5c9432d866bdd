"""`muster status`, /metrics and /healthz of real processes, and what the states of tasks mean to training."""
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest
from cluster_ports import free_ports

import muster as tf

QUICK = ["--heartbeat", "0.3", "--warn-after", "1", "--fail-after", "3"]
PROMETHEUS_SAMPLE = re.compile(r'^(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)\{(?P<labels>[^}]*)\} (?P<value>\S+)$')
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')


@pytest.fixture(autouse=True)
def fresh_graph():
    with tf.Graph().as_default():
        yield


@pytest.fixture
def status(muster_program):
    """status("host:port", ...) runs the command and gives its result."""

    def run(target, *words, environment=None):
        return subprocess.run([muster_program, "status", "--target", target, *words], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=60, env=dict(os.environ, **(environment or {})))

    return run


@pytest.fixture
def tasks_of(status):
    """The tasks that one of them reports, by job and number, as objects."""

    def get(target, *words):
        done = status(target, "--json", *words)
        assert done.returncode == 0, done.stderr
        return {(task["job"], task["task"]): task for task in json.loads(done.stdout)["tasks"]}

    return get


class Trainer(object):
    """Steps one after the other at a worker, with a variable and the global step on the ps."""

    def __init__(self, cluster, number, pause=0.0, alone=True):
        self._graph = tf.Graph()
        self._pause, self._stop = pause, threading.Event()
        self.steps, self.error = 0, None
        with self._graph.as_default():
            with tf.device("/job:ps/task:0"):
                step = tf.Variable(0, name="global_step", dtype=tf.int64)
                weights = tf.Variable(tf.zeros([1000]), name="weights")
            with tf.device("/job:worker/task:%d" % number):
                gradient = weights * 0.5 + 1.0
            with tf.device("/job:ps/task:0"):
                self._train = tf.group(tf.assign_sub(weights, gradient), tf.assign_add(step, tf.constant(1, tf.int64)))
            self._init = tf.variables_initializer([step, weights]) if number == 0 else None
        filters = ["/job:ps", "/job:worker/task:%d" % number] if alone else []
        config = tf.ConfigProto(device_filters=filters)
        self._session = tf.Session(cluster.target("worker", number), graph=self._graph, config=config)
        if self._init is not None:
            self._session.run(self._init)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        try:
            while not self._stop.is_set():
                self._session.run(self._train)
                self.steps += 1
                time.sleep(self._pause)
        except tf.errors.OpError as error:
            self.error = error

    def close(self):
        self._stop.set()
        self._thread.join(30)
        if self.error is None:
            self._session.close()


@pytest.fixture
def train():
    """train(cluster, worker number) trains until the test ends."""
    trainers = []

    def start(*arguments, **options):
        trainers.append(Trainer(*arguments, **options))
        return trainers[-1]

    yield start
    for trainer in trainers:
        trainer.close()


def wait_for(what, deadline):
    """Queries until the condition holds; gives the answer that satisfied it."""
    while True:
        result = what()
        if result:
            return result
        deadline()
        time.sleep(0.1)


def health(tasks_of, target, job, number, state, deadline):
    """Waits for a task to have this state."""

    def look():
        found = tasks_of(target)[job, number]
        return found if found["health"] == state else None

    return wait_for(look, deadline)


def test_a_training_cluster_is_shown(start_cluster, status, tasks_of, train, deadline):
    cluster = start_cluster(ps=1, worker=2)
    ps = cluster.jobs["ps"][0]
    first = train(cluster, 0, pause=0.01)
    wait_for(lambda: first.steps > 0, deadline)
    train(cluster, 1, pause=0.01)

    def both_have_rates():
        tasks = tasks_of(ps)
        return tasks if all((tasks["worker", i]["steps_per_second"] or 0) > 0 for i in range(2)) else None

    tasks = wait_for(both_have_rates, deadline)
    assert sorted(tasks) == [("ps", 0), ("worker", 0), ("worker", 1)]
    for number in range(2):
        worker = tasks["worker", number]
        assert worker["sessions"] == 1 and worker["steps"] > 0 and worker["variables"] == 0
        assert worker["bytes_received"] >= 4000 and worker["resident_bytes"] > 1000000
    server = tasks["ps", 0]
    assert server["variables"] == 2 and server["variable_bytes"] == 4008
    assert server["global_step"] > 0 and server["bytes_sent"] >= 4000
    assert server["sessions"] == 0 and server["worker_sessions"] == 2

    whole = json.loads(status(ps, "--json").stdout)
    assert whole["target"] == ps and whole["asked"] == "/job:ps/replica:0/task:0"
    assert whole["global_step"] >= server["global_step"]
    jobs = {job["job"]: job for job in whole["jobs"]}
    rates = jobs["worker"]["steps_per_second"]
    assert jobs["worker"]["running"] == 2 and 0 < rates["min"] <= rates["median"] <= rates["max"] <= rates["sum"]
    assert jobs["ps"]["steps_per_second"] is None
    # Every task gives the same answer.
    assert sorted(tasks_of(cluster.jobs["worker"][1])) == sorted(tasks)

    text = status("grpc://" + ps).stdout
    assert re.search(r"^3 tasks, asked /job:ps/replica:0/task:0 at .*, global step \d+$", text, re.M), text
    assert re.search(r"^worker 1 +(healthy|slow|starting) +\d+s +1 +\d+", text, re.M), text
    assert re.search(r"^worker: \d of 2 healthy, .*steps/s", text, re.M), text
    assert "\033" not in text


def test_bytes_of_collectives_are_counted(start_cluster, status, tasks_of):
    from muster.ops import collective_ops
    cluster = start_cluster(worker=2)
    sums = []
    for number in range(2):
        with tf.device("/job:worker/task:%d" % number):
            sums.append(collective_ops.all_reduce(tf.ones([50000]), 2, 1, 1, "Add", "Id"))
    config = tf.ConfigProto()
    config.experimental.collective_group_leader = "/job:worker/replica:0/task:0"
    with tf.Session(cluster.target("worker", 0), config=config) as session:
        assert [value[0] for value in session.run(sums)] == [2.0, 2.0]
        for task in tasks_of(cluster.jobs["worker"][1]).values():
            assert task["collective_bytes_sent"] >= 200000 and task["collective_bytes_received"] >= 200000, task
        row = re.search(r"^worker 0 .*$", status(cluster.jobs["worker"][0]).stdout, re.M).group()
        assert re.search(r"[2-9]\d\d\.\d KB +[2-9]\d\d\.\d KB", row), row


def test_killed_stopped_and_restarted(start_cluster, tasks_of, deadline):
    # Between slow and lost there are seconds enough for the command to see it, also on a busy machine.
    cluster = start_cluster(flags=QUICK[:-1] + ["8"], ps=1, worker=2)
    ps = cluster.jobs["ps"][0]
    for number in range(2):
        health(tasks_of, ps, "worker", number, "healthy", deadline)

    process = cluster.tasks["worker", 1].process
    process.send_signal(signal.SIGSTOP)
    try:
        stopped = health(tasks_of, ps, "worker", 1, "slow", deadline)
        assert "no answer for" in stopped["explanation"] and not stopped["straggler"]
        assert "no answer for" in health(tasks_of, ps, "worker", 1, "lost", deadline)["explanation"]
    finally:
        process.send_signal(signal.SIGCONT)
    before = health(tasks_of, ps, "worker", 1, "healthy", deadline)

    cluster.tasks["worker", 1].kill()
    lost = health(tasks_of, ps, "worker", 1, "lost", deadline)
    assert lost["explanation"] and lost["incarnation"] == before["incarnation"]
    assert tasks_of(ps)["worker", 0]["health"] != "lost"
    cluster.start("worker", 1)
    after = health(tasks_of, ps, "worker", 1, "healthy", deadline)
    assert after["incarnation"] != before["incarnation"]


def test_a_lost_task_is_logged_once(start_cluster, tasks_of, deadline):
    cluster = start_cluster(flags=QUICK, ps=1, worker=1)
    ps = cluster.jobs["ps"][0]
    health(tasks_of, ps, "worker", 0, "healthy", deadline)
    cluster.tasks["worker", 0].kill()
    health(tasks_of, ps, "worker", 0, "lost", deadline)
    time.sleep(1)
    cluster.start("worker", 0)
    health(tasks_of, ps, "worker", 0, "healthy", deadline)
    _, errors = cluster.tasks["ps", 0].end()
    assert errors.count("/job:worker/replica:0/task:0 is lost: ") == 1, errors
    assert errors.count("/job:worker/replica:0/task:0 is healthy again after ") == 1, errors


def test_the_command_answers_soon_whatever_has_happened(start_cluster, status, tasks_of, deadline):
    cluster = start_cluster(ps=1, worker=3)
    ps = cluster.jobs["ps"][0]
    for number in range(3):
        health(tasks_of, ps, "worker", number, "healthy", deadline)
    cluster.tasks["worker", 0].kill()
    cluster.tasks["worker", 1].process.send_signal(signal.SIGSTOP)
    try:
        begun = time.time()
        done = status(ps)
        took = time.time() - begun
        assert done.returncode == 0
        assert re.search(r"^worker 0 +lost ", done.stdout, re.M), done.stdout
        assert re.search(r"^worker 1 +slow ", done.stdout, re.M), done.stdout
        assert took < 6, took  # a second and a bit, with slack
    finally:
        cluster.tasks["worker", 1].process.send_signal(signal.SIGCONT)


def test_a_task_that_is_stopped_has_left(start_cluster, tasks_of, deadline):
    cluster = start_cluster(ps=1, worker=2)
    ps, other = cluster.jobs["ps"][0], cluster.jobs["worker"][0]
    for target in (ps, other, cluster.jobs["worker"][1]):
        for number in range(2):
            health(tasks_of, target, "worker", number, "healthy", deadline)
    code, _ = cluster.tasks["worker", 1].end(signal.SIGTERM)
    assert code == 0
    for target in (ps, other):
        assert tasks_of(target)["worker", 1]["health"] == "left"
    cluster.start("worker", 1)
    health(tasks_of, ps, "worker", 1, "healthy", deadline)


def test_workers_join_and_leave_a_running_job(start_cluster, tasks_of, train, deadline):
    cluster = start_cluster(ps=1, worker=2)
    ps = cluster.jobs["ps"][0]
    health(tasks_of, ps, "worker", 1, "healthy", deadline)
    cluster.tasks["worker", 1].end()
    assert tasks_of(ps)["worker", 1]["health"] == "left"
    first = train(cluster, 0, pause=0.005)
    wait_for(lambda: first.steps > 20, deadline)

    cluster.start("worker", 1)
    second = train(cluster, 1, pause=0.005)
    wait_for(lambda: second.steps > 20, deadline)

    def both_are_used():
        tasks = tasks_of(ps)
        return tasks if all((tasks["worker", i]["steps_per_second"] or 0) > 0 for i in range(2)) else None

    tasks = wait_for(both_are_used, deadline)
    # Both move the same model.
    assert tasks["ps", 0]["global_step"] >= tasks["worker", 1]["steps"]
    assert tasks["ps", 0]["worker_sessions"] == 2

    second.close()
    cluster.tasks["worker", 1].end()
    steps = first.steps
    wait_for(lambda: first.steps > steps + 20, deadline)
    assert first.error is None
    tasks = tasks_of(ps)
    assert tasks["worker", 1]["health"] == "left"
    assert tasks["ps", 0]["worker_sessions"] == 1


def test_a_straggler_is_named(start_cluster, tasks_of, train, deadline):
    cluster = start_cluster(flags=["--heartbeat", "0.3"], ps=1, worker=3)
    ps = cluster.jobs["ps"][0]
    first = train(cluster, 0, pause=0.05)
    wait_for(lambda: first.steps > 0, deadline)
    train(cluster, 1, pause=0.05)
    train(cluster, 2, pause=1.0)

    def straggler():
        found = tasks_of(ps)["worker", 2]
        return found if found["straggler"] else None

    found = wait_for(straggler, deadline)
    assert found["health"] == "slow" and "less than half of the median" in found["explanation"]
    _, errors = cluster.tasks["ps", 0].end()
    assert "/job:worker/replica:0/task:2 is slow: " in errors


def test_no_answer_is_an_error(status):
    port = free_ports(1)[0]
    done = status("localhost:%d" % port)
    assert done.returncode == 1 and done.stdout == ""
    assert "localhost:%d does not answer" % port in done.stderr
    # A client that sends nothing.
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        done = status("127.0.0.1:%d" % silent.getsockname()[1], "--timeout", "1")
    assert done.returncode == 1 and "does not answer" in done.stderr
    for wrong in ("localhost", "x:y", "localhost:0", ""):
        done = status(wrong)
        assert done.returncode == 1 and "HOST:PORT expected" in done.stderr


def test_a_token_is_shown(start_cluster, status, tasks_of, tmp_path):
    token, wrong = tmp_path / "token", tmp_path / "wrong"
    token.write_text("a secret\n")
    wrong.write_text("another\n")
    cluster = start_cluster(flags=["--auth-token-file", str(token)], ps=1, worker=1)
    ps = cluster.jobs["ps"][0]
    assert ("worker", 0) in tasks_of(ps, "--auth-token-file", str(token))
    assert status(ps, environment={"MUSTER_AUTH_TOKEN_FILE": str(token)}).returncode == 0
    for words in ([], ["--auth-token-file", str(wrong)]):
        done = status(ps, *words)
        assert done.returncode == 1 and "token" in done.stderr


def test_watch_redraws_on_a_terminal(start_cluster, muster_program, deadline):
    cluster = start_cluster(ps=1, worker=1)
    primary, secondary = pty.openpty()
    process = subprocess.Popen([muster_program, "status", "--watch", "--interval", "0.2", "--target",
                                cluster.jobs["ps"][0]], stdout=secondary)
    os.close(secondary)
    try:
        shown = b""
        # Each goes up over the lines of the one before.
        while not re.search(rb"\x1b\[6A\r\x1b\[J2 tasks, asked ", shown):
            deadline()
            shown += os.read(primary, 65536)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.wait()
        os.close(primary)
    assert shown.count(b"2 tasks, asked ") >= 2


def test_watch_as_json_has_a_line_for_each(start_cluster, muster_program):
    cluster = start_cluster(ps=1)
    process = subprocess.Popen([muster_program, "status", "--watch", "--json", "--interval", "0.1", "--target",
                                cluster.jobs["ps"][0]], stdout=subprocess.PIPE, text=True)
    try:
        for _ in range(3):
            assert json.loads(process.stdout.readline())["tasks"][0]["health"] == "healthy"
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert process.returncode == 0


# --- over HTTP


def fetch(port, path):
    """The code and the body."""
    try:
        with urllib.request.urlopen("http://127.0.0.1:%d%s" % (port, path), timeout=30) as reply:
            return reply.status, reply.read().decode(), reply.headers["Content-Type"]
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), error.headers["Content-Type"]


def parse(text):
    """Samples by name and labels, after the rules of the format."""
    assert text.endswith("\n")
    types, samples, name = {}, {}, None
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name = line.split(" ", 3)[2]
            assert name not in types, "%s stands twice" % name
            continue
        if line.startswith("# TYPE "):
            assert line.split(" ")[2] == name
            types[name] = line.split(" ")[3]
            assert types[name] in ("counter", "gauge")
            continue
        match = PROMETHEUS_SAMPLE.match(line)
        assert match and match["name"] == name, line
        labels = LABEL.findall(match["labels"])
        assert ",".join('%s="%s"' % pair for pair in labels) == match["labels"], line
        key = (name,) + tuple(sorted(labels))
        assert key not in samples, line
        samples[key] = float(match["value"])
    return types, samples


ENDLESS = """
import sys, muster as tf
tf.Session(sys.argv[1]).run(tf.while_loop(lambda i: i >= 0, lambda i: (i + 1) % 1000, [tf.constant(0)]))
"""


def test_metrics_and_health_of_a_task(start_task, deadline):
    port, metrics = free_ports(2)
    task = start_task(["--cluster", "ps=localhost:%d" % port, "--job", "ps", "--metrics-port", str(metrics), "--bind",
                       "127.0.0.1", "--grace", "60"])
    assert fetch(metrics, "/healthz")[:2] == (200, "ok\n")
    assert fetch(metrics, "/elsewhere")[0] == 404
    target = "grpc://localhost:%d" % port
    with tf.Session(target) as session:
        session.run(tf.Variable(tf.zeros([10])).initializer)
        code, text, kind = fetch(metrics, "/metrics")
    assert code == 200 and kind == "text/plain; version=0.0.4; charset=utf-8"
    types, samples = parse(text)
    own = (("muster_job", "ps"), ("task", "0"))
    assert samples[("muster_variables",) + own] == 1
    assert samples[("muster_variable_bytes",) + own] == 40
    assert samples[("muster_sessions",) + own] == 1
    assert types["muster_steps_total"] == "counter" and samples[("muster_steps_total",) + own] == 1
    healthy = ("muster_peer_state",) + tuple(sorted(own + (("peer_job", "ps"), ("peer_task", "0"), ("state", "healthy"))))
    assert samples[healthy] == 1

    # A step that does not end keeps the server for its grace: it is not ready any more, and says so.
    client = subprocess.Popen([sys.executable, "-c", ENDLESS, target], stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: parse(fetch(metrics, "/metrics")[1])[1][("muster_steps_under_way",) + own] == 1, deadline)
        task.process.send_signal(signal.SIGTERM)

        def changed():
            found = fetch(metrics, "/healthz")[:2]
            return found if found != (200, "ok\n") else None

        assert wait_for(changed, deadline) == (503, "stopping\n")
    finally:
        client.kill()
        client.wait()


def test_a_taken_metrics_port_is_named(muster_program, start_task):
    first, second, metrics = free_ports(3)
    start_task(["--cluster", "ps=localhost:%d" % first, "--metrics-port", str(metrics)])
    done = subprocess.run([muster_program, "serve", "--cluster", "ps=localhost:%d" % second, "--metrics-port",
                           str(metrics)], stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 1 and "port %d" % metrics in done.stderr and "in use" in done.stderr


SERVER = """
import sys, muster as tf
server = tf.train.Server({"local": ["127.0.0.1:0"]}, start=False)
print("made", flush=True)
sys.stdin.readline()
server.start()
print("started", flush=True)
sys.stdin.readline()
"""


def test_servers_in_python_serve_metrics(deadline):
    port = free_ports(1)[0]
    process = subprocess.Popen([sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                               env=dict(os.environ, MUSTER_METRICS_PORT=str(port)))
    try:
        assert process.stdout.readline() == "made\n"
        assert fetch(port, "/healthz")[:2] == (503, "starting\n")
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "started\n"
        assert fetch(port, "/healthz")[:2] == (200, "ok\n")
        assert parse(fetch(port, "/metrics")[1])[0]["muster_sessions"] == "gauge"
    finally:
        process.kill()
        process.communicate()


def test_a_server_in_this_process_is_given_its_port():
    port = free_ports(1)[0]
    server = tf.train.Server({"local": ["127.0.0.1:0"]}, metrics_port=port)
    assert fetch(port, "/healthz")[:2] == (200, "ok\n")
    server.stop(grace=0)
    with pytest.raises(urllib.error.URLError):
        fetch(port, "/healthz")


def test_a_wrong_metrics_port_is_explained():
    done = subprocess.run([sys.executable, "-c", SERVER], stderr=subprocess.PIPE, text=True, timeout=60,
                          env=dict(os.environ, MUSTER_METRICS_PORT="http"))
    assert "MUSTER_METRICS_PORT is 'http'" in done.stderr


LAUNCHED = """
import os, urllib.request, tensorflow as tf
flags = tf.app.flags
for name in ("ps_hosts", "worker_hosts", "job_name"):
    flags.DEFINE_string(name, "", "")
flags.DEFINE_integer("task_index", 0, "")
F = flags.FLAGS
server = tf.train.Server({"ps": F.ps_hosts.split(","), "worker": F.worker_hosts.split(",")}, job_name=F.job_name,
                         task_index=F.task_index)
if F.job_name == "ps":
    server.join()
port = os.environ["MUSTER_METRICS_PORT"]
print("at", port, urllib.request.urlopen("http://127.0.0.1:%s/healthz" % port).read())
"""


def free_ports_in_a_row(count):
    """The first of them."""
    while True:
        first = free_ports(1)[0]
        try:
            for port in range(first, first + count):
                with socket.socket() as one:
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    one.bind(("0.0.0.0", port))
            return first
        except OSError:
            continue


def test_launched_tasks_have_ports_one_after_the_other(muster_program, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(LAUNCHED)
    base = free_ports_in_a_row(3)
    done = subprocess.run([muster_program, "launch", "--metrics-port", str(base), "--ps", "1", "--workers", "2",
                           "--no_colour", str(script)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=120)
    assert done.returncode == 0, done.stdout
    for number in range(2):
        assert "[worker %d] at %d b'ok\\n'" % (number, base + 1 + number) in done.stdout, done.stdout
    done = subprocess.run([muster_program, "launch", "--metrics-port", str(base), "--standalone", str(script)],
                          stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 2 and "--metrics-port" in done.stderr
