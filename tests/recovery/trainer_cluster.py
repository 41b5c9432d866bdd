"""Clusters of trainers: processes that are killed, stopped and started again."""
import ctypes
import os
import queue
import signal
import subprocess
import threading
import time

from cluster_ports import free_ports

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PRESET = os.environ.get("MUSTER_BUILD", "release")
_libc = ctypes.CDLL(None)
# Bounds are promises with threefold slack: tests share the machine with others.
SLACK = 3


def _die_with_parent():
    _libc.prctl(1, signal.SIGKILL)


class Event(object):
    """A line that a task printed: when, and its words."""

    def __init__(self, line):
        self.line = line
        words = line.split()
        try:
            self.time, self.words = float(words[0]), words[1:]
        except (ValueError, IndexError):
            self.time, self.words = time.time(), words

    @property
    def step(self):
        return int(self.words[1]) if self.words[:1] == ["step"] and len(self.words) > 1 else None

    @property
    def counters(self):
        return [int(w) for w in self.words[2:4]]


class Task(object):
    """One process; its output is read as it comes."""

    def __init__(self, name, words, environment):
        self.name = name
        self.events = []
        self._new = queue.Queue()
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                        env=environment, preexec_fn=_die_with_parent)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            self._new.put(Event(line.rstrip("\n")))
        self._new.put(None)

    def _take(self, timeout):
        event = self._new.get(timeout=max(timeout, 0.001))
        if event is not None:
            self.events.append(event)
        else:
            self._new.put(None)
        return event

    def drain(self):
        """All that it has printed by now."""
        while True:
            try:
                if self._take(0.001) is None:
                    return self.events
            except queue.Empty:
                return self.events

    def wait_for(self, what, timeout=120, after=0.0):
        """The first event from now on (or after a time) that `what`, a text or a function, accepts."""
        accepts = what if callable(what) else lambda e: what in e.line
        end = time.time() + timeout
        while time.time() < end:
            try:
                event = self._take(end - time.time())
            except queue.Empty:
                break
            if event is None:
                break
            if event.time >= after and accepts(event):
                return event
        raise AssertionError("%s: nothing like %r within %.0f s; last lines:\n%s" % (
            self.name, what, timeout, "\n".join(e.line for e in self.events[-30:])))

    def wait_for_step(self, step, timeout=120, after=0.0):
        return self.wait_for(lambda e: e.step is not None and e.step >= step, timeout, after)

    def last_step(self):
        steps = [e.step for e in self.drain() if e.step is not None]
        return steps[-1] if steps else None

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        return time.time()

    def wait(self, timeout):
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.drain()
            raise AssertionError("%s did not end within %.0f s; last lines:\n%s" % (
                self.name, timeout, "\n".join(e.line for e in self.events[-30:])))


class Trainers(object):
    """A cluster of replica.py or another script. `stock` tasks run on TensorFlow 2.21."""

    def __init__(self, folder, ps, workers, arguments, stock=(), script="replica.py"):
        self.folder = str(folder)
        ports = free_ports(ps + workers)
        self._ps = ",".join("localhost:%d" % p for p in ports[:ps])
        self._workers = ",".join("localhost:%d" % p for p in ports[ps:])
        self._arguments = list(arguments)
        self._stock = set(stock)
        self._script = os.path.join(HERE, script)
        self._all = []
        self.tasks = {}

    def start(self, job, index, *arguments):
        name = "%s %d" % (job, index)
        stock = job in self._stock or name in self._stock
        words = ([os.environ["MUSTER_TF_PYTHON"]] if stock else
                 [os.path.join(ROOT, "build", PRESET, "bin", "muster"), "run"])
        words = words + [self._script, "--ps_hosts", self._ps, "--worker_hosts", self._workers,
                         "--job_name", job, "--task_index", str(index), "--checkpoint_dir", self.folder]
        task = Task(name, words + self._arguments + list(arguments),
                    dict(os.environ, PYTHONUNBUFFERED="1", TF_CPP_MIN_LOG_LEVEL="3" if stock else "0",
                         TF_ENABLE_ONEDNN_OPTS="0", CUDA_VISIBLE_DEVICES=""))
        self._all.append(task)
        self.tasks[name] = task
        return task

    def __getitem__(self, name):
        return self.tasks[name]

    def end(self):
        for task in self._all:
            if task.process.poll() is None:
                task.process.kill()
        for task in self._all:
            task.process.wait()
