"""Records the messages between a client and the tasks of a cluster.

usage: wire_record.py SCENARIO --client PYTHON --task COMMAND --out DIR

PYTHON runs the client, a stock TensorFlow 1.15 or 2.x. COMMAND starts one
task; {cluster} stands for the ClusterSpec as JSON ({"ps": ["localhost:1"],
...}), {job}, {task}, {port} for the task. The interpreter that runs this file
needs grpcio and tensorflow 2.x (the package's message classes only), so it may
differ from PYTHON. Calls of a master to the worker in its own process do not
pass a proxy and are not recorded.
"""
import argparse
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import wire_transcript

HERE = os.path.dirname(os.path.abspath(__file__))
TWO, THREE = ["ps:0", "worker:0"], ["ps:0", "worker:0", "worker:1"]
NEED_THREE = ("e_errors", "l_clusterspec", "m_sync")  # the others have one master, worker:0


class Cluster:
    """Tasks and, in front of each, a proxy with one port per caller."""

    def __init__(self, tasks, folder, command, base_port):
        self.tasks, self.folder, self.command = tasks, folder, command
        ports = iter(free_ports(base_port))
        self.real = {t: next(ports) for t in tasks}
        self.proxied = {(s, d): next(ports) for d in tasks for s in ["client", "peer"] + tasks if s != d}
        self.processes, self.proxies, self.starts = {}, {}, 0

    def description(self):
        task_at = {str(p): t for t, p in self.real.items()}
        task_at.update({str(p): d for (_, d), p in self.proxied.items()})
        return dict(real=self.real, proxied={s + ">" + d: p for (s, d), p in self.proxied.items()}, task_at=task_at)

    def cluster_spec(self, source):
        spec = {}
        for t in self.tasks:
            port = self.real[t] if t == source else self.proxied[(source, t)]
            spec.setdefault(t.split(":")[0], []).append("localhost:%d" % port)
        return spec

    def start_proxy(self, task):
        self.starts += 1
        log = os.path.join(self.folder, "%s.%d.log" % (task.replace(":", ""), self.starts))
        command = [sys.executable, os.path.join(HERE, "wire_proxy.py"), log, task, "localhost:%d" % self.real[task]]
        command += ["%s=%d" % (s, p) for (s, d), p in self.proxied.items() if d == task]
        self.proxies[task] = self.spawn(command, "proxy")
        wait_until(lambda: os.path.exists(log) and os.path.getsize(log), 20, "the proxy of " + task, self.proxies[task])

    def start_task(self, task):
        self.starts += 1
        job, index = task.split(":")
        values = {"{cluster}": json.dumps(self.cluster_spec(task)), "{job}": job, "{task}": index,
                  "{port}": str(self.real[task])}
        command = []
        for word in shlex.split(self.command):
            for key, value in values.items():
                word = word.replace(key, value)
            command.append(word)
        self.processes[task] = self.spawn(command, "%s%s.%d" % (job, index, self.starts))

    def spawn(self, command, name):
        with open(os.path.join(self.folder, name + ".out"), "a") as out:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                                    start_new_session=True)

    def wait_for(self, task):
        def listening():
            try:
                socket.create_connection(("localhost", self.real[task]), 1).close()
                return True
            except OSError:
                return False
        wait_until(listening, 60, "task %s (its output: %s)" % (task, self.folder), self.processes[task])

    def start(self):
        for t in self.tasks:
            self.start_proxy(t)
        for t in self.tasks:
            self.start_task(t)
        for t in self.tasks:
            self.wait_for(t)
        time.sleep(0.5)

    def kill(self, task):
        running = [d[task] for d in (self.processes, self.proxies) if task in d]
        for p in running:
            try:
                os.killpg(p.pid, signal.SIGKILL)  # the task's own process group
            except ProcessLookupError:
                pass
        for p in running:
            p.wait()

    def restart(self, task):
        self.start_task(task)
        self.wait_for(task)
        self.start_proxy(task)

    def stop(self):
        for t in self.tasks:
            self.kill(t)


def wait_until(condition, seconds, what, process):
    end = time.time() + seconds
    while not condition():
        if process.poll() is not None:
            raise SystemExit("%s ended with status %s" % (what, process.returncode))
        if time.time() > end:
            raise SystemExit("%s is not up after %d s" % (what, seconds))
        time.sleep(0.1)


def free_ports(port):
    """Ports without a listener; five digits, so that addresses have one length."""
    while True:
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind(("", port))
            except OSError:
                port += 1
                continue
        yield port
        port += 1


def run_client(client, cluster, name, log, limit):
    """Runs the scenario in the client and serves its requests to kill and restart tasks."""
    command = client + [os.path.join(HERE, "wire_scenarios.py"), log, json.dumps(cluster.description()), name]
    with open(os.path.join(cluster.folder, "client.out"), "w") as out:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=out,
                                   universal_newlines=True, start_new_session=True)
        # A server under test may block a scenario for ever.
        watchdog = threading.Timer(limit, os.killpg, (process.pid, signal.SIGKILL))
        watchdog.start()
        try:
            for line in process.stdout:
                word, _, argument = line.strip().partition(" ")
                if word in ("@kill", "@restart"):
                    getattr(cluster, word[1:])(argument)
                    process.stdin.write("done\n")
                    process.stdin.flush()
                elif word == "@end":
                    print("  " + argument, flush=True)
                else:
                    out.write(line)
            process.wait()
        finally:
            watchdog.cancel()
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    if process.returncode:
        print("  the client ended with status %d; see %s" % (process.returncode, out.name), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario")
    parser.add_argument("--client", required=True, metavar="PYTHON")
    parser.add_argument("--task", required=True, metavar="COMMAND")
    parser.add_argument("--out", required=True, metavar="DIR")
    parser.add_argument("--base-port", type=int, default=22000)
    parser.add_argument("--limit", type=int, default=120, metavar="S", help="seconds, then the client is killed")
    a = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that tasks are ended
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # 2.21 appends logged errors to error messages
    tasks = THREE if a.scenario in NEED_THREE else TWO
    os.makedirs(a.out, exist_ok=True)
    folder = tempfile.mkdtemp(prefix="wire")
    print("%s: %s" % (" ".join(tasks), a.scenario), flush=True)
    cluster = Cluster(tasks, folder, a.task, a.base_port)
    try:
        cluster.start()
        run_client([a.client], cluster, a.scenario, os.path.join(folder, "client.log"), a.limit)
    finally:
        cluster.stop()
    wire_transcript.write(wire_transcript.load(folder), a.scenario, a.out)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
