"""Clusters of Muster and TensorFlow servers, and clients of both kinds; everything that is started is ended."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

from cluster_ports import free_ports, readable

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MUSTER = ROOT / "build" / os.environ.get("MUSTER_BUILD", "release") / "bin" / "muster"
START_SECONDS = 90
CALL_SECONDS = 120

# # Which program serves ps 0, worker 0 (the master of most cases) and worker 1.
CLUSTERS = {
    "muster": {"ps/0": "muster", "worker/0": "muster", "worker/1": "muster"},
    "muster_ps": {"ps/0": "muster", "worker/0": "stock", "worker/1": "stock"},
    "muster_master": {"ps/0": "stock", "worker/0": "muster", "worker/1": "stock"},
    "stock": {"ps/0": "stock", "worker/0": "stock", "worker/1": "stock"},
}


def _environment():
    import muster
    # Unresolved: in a build tree the modules are links, and the extension is beside the links.
    return dict(os.environ, PYTHONPATH=str(pathlib.Path(muster.__file__).parent.parent), PYTHONUNBUFFERED="1")


class Process(object):
    """A program that is spoken to by lines; what it says on stderr is kept for messages of failed tests."""

    def __init__(self, words):
        self._words = [str(w) for w in words]
        self._log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(self._words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log,
                                        text=True, env=_environment())

    def said(self):
        self._log.seek(0)
        return self._log.read().decode(errors="replace")[-3000:]

    def line(self, timeout):
        ready = readable(self.process.stdout, timeout)
        line = self.process.stdout.readline() if ready else ""
        if not line:
            self.end()
            what = "ended with %s" % self.process.returncode if ready else "did not answer within %d s" % timeout
            raise AssertionError("%s %s: %s" % (" ".join(self._words), what, self.said()))
        return line.rstrip("\n")

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                try:
                    pipe.close()
                except BrokenPipeError:
                    pass


class Cluster(object):
    """One ps and two workers. Tasks are named ps/0, worker/0, worker/1."""

    def __init__(self, tf_python, kinds, flags=()):
        self.kinds, self._tf_python, self._flags = dict(kinds), tf_python, list(flags)
        names = sorted(kinds)
        addresses = dict(zip(names, ("localhost:%d" % p for p in free_ports(len(names)))))
        self.jobs = {}
        for name in names:
            self.jobs.setdefault(name.partition("/")[0], []).append(addresses[name])
        self.targets = {name: "grpc://" + address for name, address in addresses.items()}
        self.tasks = {}
        try:
            for name in names:
                self.launch(name)
            for name in names:
                self.tasks[name].line(START_SECONDS)
        except BaseException:
            self.close()
            raise

    def launch(self, name):
        job, _, number = name.partition("/")
        if self.kinds[name] == "muster":
            spec = ";".join("%s=%s" % (j, ",".join(tasks)) for j, tasks in self.jobs.items())
            words = [MUSTER, "serve", "--cluster", spec, "--job", job, "--task", number] + self._flags
        else:
            words = [self._tf_python, HERE / "agent.py", "server",
                     json.dumps({"cluster": self.jobs, "job": job, "task": int(number)})]
        self.tasks[name] = Process(words)

    def restart(self, name):
        self.tasks[name].end()
        self.launch(name)
        self.tasks[name].line(START_SECONDS)

    def said(self):
        return "\n".join("%s: %s" % (name, task.said()) for name, task in self.tasks.items() if task.said())

    def close(self):
        for task in self.tasks.values():
            task.end()


class Client(object):
    """A process with one of the two clients; one that hangs or dies is replaced before the next call."""

    def __init__(self, tf_python, kind):
        self._words = [tf_python if kind == "stock" else sys.executable, HERE / "agent.py", "client", kind]
        self._process = None

    def call(self, timeout=CALL_SECONDS, **call):
        if self._process is None:
            self._process = Process(self._words)
        process, self._process = self._process, None
        process.process.stdin.write(json.dumps(call) + "\n")
        process.process.stdin.flush()
        reply = json.loads(process.line(timeout))
        self._process = process
        if "error" in reply:
            raise AssertionError(reply["error"])
        return reply["value"]

    def close(self):
        if self._process is not None:
            self._process.end()
