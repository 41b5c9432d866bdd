"""Runs wire_replay.py, wire_record.py and wire_compare.py against `muster serve` and reads what they report."""
import concurrent.futures
import contextlib
import fnmatch
import itertools
import json
import os
import pathlib
import random
import re
import subprocess

import wire_recordings
from cluster_ports import free_ports, readable

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE.parent / "golden" / "wire"
VERSIONS = ["2.21", "1.15.5"]
SCENARIOS = [
    "n_worker_errors", "n_register_graph", "n_master_errors", "a_session", "b_ps_worker", "b_three_tasks", "c_while",
    "c_while_nested", "d_cond", "e_errors", "e_timeout_cancel", "f_partial_run", "g_callables", "h_reset",
    "h_reset_containers", "j_full_trace", "k_tensors", "o_resource_variable", "o_control_flow_v2", "o_require_ack"
]
RECORDED = [
    "e_errors", "l_clusterspec", "m_sync", "i_close_idle_ps_down", "i_close_ps_down", "i_create_ps_down",
    "i_master_killed", "i_ps_killed_idle", "i_ps_killed_idle_wait", "i_ps_killed_mid_step", "i_ps_restarted_idle"
]
# Clusters of the recordings that are not ps:0, worker:0, worker:1.
OTHER_CLUSTERS = {
    "a_session": ["local:0"],
    "h_reset_containers": ["ps:0", "worker:0"],
    "n_master_errors": ["ps:0", "worker:0"],
}
# Steps and pauses of the recordings are short; what takes time is starting the tools, several at once.
REPLAY_SECONDS = 180
RECORD_SECONDS = 240
# Recorded calls have deadlines and pauses of fractions of a second, which a busy machine may miss: what is really
# different is so every time.
ATTEMPTS = 3
AT_ONCE = 4


class Difference(object):
    """One call that was answered, or made, otherwise than in the recording."""

    def __init__(self, call):
        self.call, self.lines = call, []

    @property
    def method(self):
        return self.call.split(" (new")[0].split()[-1]

    def __str__(self):
        return "\n".join([self.call] + ["    " + line for line in self.lines])


def read_differences(report):
    """What follows the verdict in the report of wire_replay.py or wire_compare.py."""
    lines = report.splitlines()
    verdicts = [i for i, line in enumerate(lines) if line.endswith(("differs", "no difference"))]
    if not verdicts:
        raise AssertionError("no verdict in\n" + report)
    found = []
    for line in lines[verdicts[0] + 1:]:
        if not line.strip():
            continue
        if line.startswith("      ") and found:
            sign, _, text = line.strip().partition(" ")
            found[-1].lines.append(sign + " " + text)
        else:
            found.append(Difference(line.strip()))
    return found


class Deviation(object):
    """A paragraph of deviations.txt."""

    def __init__(self, name):
        self.name, self.why, self.where, self.patterns, self.used = name, "", [], [], False
        self.is_chance = False

    def explains(self, version, scenario, difference, line):
        applies = any(
            fnmatch.fnmatchcase("%s %s %s" % (version, scenario, difference.method), where) for where in self.where)
        return applies and any(pattern.fullmatch(line) for pattern in self.patterns)


def read_deviations(path):
    deviations = []
    for line in path.read_text().splitlines():
        if re.fullmatch(r"\[[^][]*\]", line):
            deviations.append(Deviation(line.strip("[]")))
        elif line.startswith("why: "):
            deviations[-1].why = line[len("why: "):]
        elif line == "chance: yes":
            deviations[-1].is_chance = True
        elif line.startswith("where: "):
            deviations[-1].where.append(line[len("where: "):])
        elif line.startswith("= "):
            deviations[-1].patterns.append(re.compile(line[len("= "):]))
        elif re.match(r"(-|\+|\[\+-\]) ", line):
            sign, pattern = line.split(" ", 1)
            deviations[-1].patterns.append(re.compile((re.escape(sign) if len(sign) == 1 else sign) + " " + pattern))
        elif line and not line.startswith("#"):
            raise ValueError("%s: what is %r?" % (path, line))
    return deviations


def unexplained(differences, version, scenario, deviations):
    """The differences that no deviation explains; those that do are marked as used."""
    rest = []
    for difference in differences:
        # A call that is there or not is a line of its own.
        lines = difference.lines or [difference.call]
        for line in lines:
            reasons = [d for d in deviations if d.explains(version, scenario, difference, line)]
            for reason in reasons:
                reason.used = True
            if not reasons:
                rest.append("%s\n    %s" % (difference.call, line))
    return rest


HEAD = re.compile(r" *\+\d+\.\d+  (?:\[(\d+)\] \S+ (->|<-|x-) \S+  (\S+)|--)")
STEP = re.compile(r"^ {4}step_id: (\d+)", re.M)


def comparable(transcript):
    """A transcript without what wire_compare.py cannot judge.

    Which transfers a step has begun when it fails is chance, and they would be paired with those of others. Muster's
    tasks watch each other by calls of their own.
    """
    blocks = []  # [lines, number, method]
    for line in transcript.splitlines(keepends=True):
        head = HEAD.match(line)
        if head or not blocks:
            blocks.append([line, head.group(1) if head else None, head.group(3) if head else None])
        else:
            blocks[-1][0] += line
    steps = {number: STEP.search(text).group(1) for text, number, method in blocks
             if method in ("WorkerService/RunGraph", "WorkerService/RecvTensor") and STEP.search(text)}
    failed = {steps.get(number) for text, number, method in blocks if method == "RunGraph"
              and ("    status_code: " in text or "gRPC status" in text or " x- " in text.split("\n")[0])}
    dropped = {number for _, number, method in blocks
               if method == "WorkerService/RecvTensor" and steps.get(number) in failed
               or (method or "").endswith(("/Hello", "/Status"))}
    return "".join(text for text, number, _ in blocks if number is None or number not in dropped)


def roles(version, scenario):
    """{task: "master" or "worker"} of the tasks that a replay can stand for."""
    events = wire_recordings.messages(GOLDEN / version, scenario)
    if events is None:
        return {"ps:0": "worker", "worker:0": "master"}
    requests = [e for e in events if e["ev"] == "request"]
    found = {e["dst"]: "worker" for e in requests}
    found.update({e["dst"]: "master" for e in requests if e["src"] == "client" and "Master" in e["method"]})
    return found


def _environment(scenario=""):
    return dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", MUSTER_CACHE_RPC_RESPONSE=str(int(scenario == "o_require_ack")))


@contextlib.contextmanager
def live_cluster(muster, tasks, environment):
    """`muster serve` for each task; gives {task: address} and ends them."""
    addresses = dict(zip(tasks, ("localhost:%d" % port for port in free_ports(len(tasks)))))
    spec = {}
    for task in tasks:
        spec.setdefault(task.split(":")[0], []).append(addresses[task])
    processes = []
    try:
        for task in tasks:
            job, number = task.split(":")
            processes.append(
                subprocess.Popen([muster, "serve", "--cluster", json.dumps(spec), "--job", job, "--task", number],
                                 stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment))
        for task, process in zip(tasks, processes):
            ready = readable(process.stdout, 30)
            if not ready or not process.stdout.readline():
                raise AssertionError("%s did not start" % task)
        yield addresses
    finally:
        for process in processes:
            process.kill()
            process.communicate()


class Tools(object):
    """The wire tools with a `muster serve`; replays run in parallel, each in its own cluster."""

    def __init__(self, python, muster):
        self._python, self._muster = python, muster
        self._pool = concurrent.futures.ThreadPoolExecutor(AT_ONCE)
        # The tools look for free ports from here on; tools that run at once must not choose the same.
        self._bases = itertools.count(random.randrange(20000, 24000), 40)
        self._started = {}

    def close(self):
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _task_command(self):
        return self._muster + " serve --cluster {cluster} --job {job} --task {task}"

    def _run(self, seconds, words, environment):
        process = subprocess.Popen([self._python] + [str(w) for w in words], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, env=environment)
        try:
            output, errors = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.terminate()  # it ends what it has started
            try:
                output, errors = process.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                output, errors = process.communicate()
            raise AssertionError("%s took longer than %d s\n%s\n%s" % (words[0], seconds, output, errors))
        if process.returncode not in (0, 1) or not output:
            raise AssertionError("%s ended with %d\n%s\n%s" % (words[0], process.returncode, output, errors))
        return output

    def replay(self, version, scenario, role):
        key = (version, scenario, role)
        if key not in self._started:
            self._started[key] = self._pool.submit(self._replay, *key)
        return self._started[key]

    def replay_again(self, version, scenario, role):
        return self._pool.submit(self._replay, version, scenario, role).result()

    def _replay(self, version, scenario, role):
        words = [HERE / "wire_replay.py", GOLDEN / version / scenario, "--as", role]
        environment = _environment(scenario)
        if roles(version, scenario)[role] == "worker":
            words += ["--task", self._task_command(), "--base-port", next(self._bases)]
            return read_differences(self._run(REPLAY_SECONDS, words, environment))
        tasks = OTHER_CLUSTERS.get(scenario, ["ps:0", "worker:0", "worker:1"])
        with live_cluster(self._muster, tasks, environment) as addresses:
            return read_differences(self._run(REPLAY_SECONDS, words + ["--target", addresses[role]], environment))

    def recording(self, scenario, folder):
        key = "record", scenario
        if key not in self._started:
            self._started[key] = self._pool.submit(self.record, scenario, folder)
        return self._started[key]

    def record(self, scenario, folder):
        words = [HERE / "wire_record.py", scenario, "--client", self._python, "--out", folder]
        words += ["--task", self._task_command(), "--base-port", next(self._bases), "--limit", RECORD_SECONDS // 2]
        # The tasks use TensorFlow's calls among themselves, as those that were recorded did.
        self._run(RECORD_SECONDS, words, dict(_environment(), MUSTER_BATCHES="0"))
        return folder

    def compare(self, version, scenario, folder):
        paths = []
        for kind, source in ("golden", GOLDEN / version), ("new", folder):
            paths.append(folder / kind / (scenario + ".txt"))
            paths[-1].parent.mkdir(exist_ok=True)
            paths[-1].write_text(comparable(wire_recordings.transcript(source, scenario)))
        words = [HERE / "wire_compare.py"] + paths + ["--no-graphs", "--codes-only"]
        return read_differences(self._run(REPLAY_SECONDS, words, _environment()))
