"""Clusters of real processes for tests; everything that is started is ended, whatever happens."""
import ctypes
import gc
import os
import signal
import subprocess
import tempfile
import time

import pytest
from cluster_ports import free_ports, readable

PRESET = os.environ.get("MUSTER_BUILD", "release")
START_SECONDS = 30


_libc = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def _die_with_parent():
    """In the new process: it ends with the tests, even when those are killed."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _close_lost_sessions():
    """A session that a test leaves to the garbage collector is closed there: while its master lives, and not in the middle
    of another test, which would wait for the dead."""
    gc.collect()


class Task(object):
    """A process of `muster serve`."""

    def __init__(self, words, environment=None):
        self._words = words
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        env=dict(os.environ, **(environment or {})), preexec_fn=_die_with_parent)
        self.first_line = self._read_line()

    def _read_line(self):
        ready = readable(self.process.stdout, START_SECONDS)
        line = self.process.stdout.readline() if ready else ""
        if not line:
            self.process.kill()
            _, errors = self.process.communicate()
            raise AssertionError("%s did not start: %s" % (" ".join(self._words), errors))
        return line.rstrip("\n")

    def end(self, number=signal.SIGTERM, timeout=15):
        """Stops it; gives the exit status and what it wrote to stderr."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            _, errors = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise AssertionError("%s did not end within %d s" % (" ".join(self._words), timeout))
        return self.process.returncode, errors

    def kill(self):
        self.process.kill()
        self.process.communicate()


class Cluster(object):
    """Jobs with their numbers of tasks, on free ports of this machine."""

    def __init__(self, muster, environment=None, flags=(), cgroup=None, **jobs):
        ports = iter(free_ports(sum(jobs.values())))
        self._muster, self._environment, self._flags = muster, environment, list(flags)
        self._inside = [] if cgroup is None else cgroup.command
        self.jobs = {job: ["localhost:%d" % next(ports) for _ in range(count)] for job, count in jobs.items()}
        self.spec = ";".join("%s=%s" % (job, ",".join(tasks)) for job, tasks in self.jobs.items())
        self.tasks = {}
        try:
            for job, addresses in self.jobs.items():
                for number in range(len(addresses)):
                    self.start(job, number)
        except BaseException:
            self.close()
            raise

    def start(self, job, number):
        self.tasks[job, number] = Task(
            self._inside + [self._muster, "serve", "--cluster", self.spec, "--job", job, "--task", str(number)] + self._flags,
            self._environment)

    def target(self, job="worker", number=0):
        return "grpc://" + self.jobs[job][number]

    def close(self):
        for task in self.tasks.values():
            task.kill()


@pytest.fixture(scope="session")
def muster_program(root):
    path = os.path.join(root, "build", PRESET, "bin", "muster")
    if not os.path.exists(path):
        pytest.fail("%s is not built" % path)
    return path


@pytest.fixture
def start_cluster(muster_program):
    """start_cluster(ps=1, worker=2) starts the tasks and gives the cluster."""
    clusters = []

    def start(environment=None, flags=(), cgroup=None, **jobs):
        clusters.append(Cluster(muster_program, environment, flags, cgroup, **jobs))
        return clusters[-1]

    def close():
        _close_lost_sessions()
        for cluster in clusters:
            cluster.close()
        clusters.clear()

    start.close = close
    yield start
    close()


@pytest.fixture(scope="module")
def shared_cluster(muster_program):
    """One ps and two workers for all tests of a module that leave them as they were."""
    cluster = Cluster(muster_program, ps=1, worker=2)
    yield cluster
    cluster.close()


class MemoryGroup(object):
    """A memory cgroup, of version 1 or 2; `command` before another one runs that in it."""

    _V1, _V2 = "/sys/fs/cgroup/memory", "/sys/fs/cgroup"

    def __init__(self, limit_bytes):
        is_1 = os.path.exists(os.path.join(self._V1, "memory.limit_in_bytes"))
        self._folder = tempfile.mkdtemp(prefix="muster-test-", dir=self._V1 if is_1 else self._V2)
        self.write("memory.limit_in_bytes" if is_1 else "memory.max", limit_bytes)
        swap = "memory.memsw.limit_in_bytes" if is_1 else "memory.swap.max"
        if os.path.exists(os.path.join(self._folder, swap)):
            self.write(swap, limit_bytes if is_1 else 0)
        procs = os.path.join(self._folder, "cgroup.procs")
        self.command = ["sh", "-c", 'echo $$ > "$0" && exec "$@"', procs]

    def write(self, name, value):
        with open(os.path.join(self._folder, name), "w") as file:
            file.write(str(value))

    def remove(self):
        """Once its processes have ended."""
        end = time.time() + 10
        while True:
            try:
                return os.rmdir(self._folder)
            except OSError:
                if time.time() > end:
                    raise
            time.sleep(0.05)


@pytest.fixture
def memory_group(start_cluster):
    """memory_group(limit_bytes) makes a cgroup for the tasks of start_cluster(cgroup=...)."""
    groups = []

    def make(limit_bytes):
        try:
            groups.append(MemoryGroup(limit_bytes))
        except OSError as error:
            pytest.skip("memory cgroups cannot be made (%s): what tasks do at the end of one's memory is not tested" % error)
        return groups[-1]

    yield make
    start_cluster.close()
    for group in groups:
        group.remove()


@pytest.fixture
def deadline():
    """The test fails when it takes longer than this; for loops that wait."""
    end = time.time() + 60

    def left():
        assert time.time() < end, "waited for too long"
        return end - time.time()

    return left


@pytest.fixture
def start_task(muster_program):
    """start_task(["--cluster", ...]) starts one `muster serve`."""
    tasks = []

    def start(words, environment=None):
        tasks.append(Task([muster_program, "serve"] + list(words), environment))
        return tasks[-1]

    yield start
    _close_lost_sessions()
    for task in tasks:
        task.kill()
