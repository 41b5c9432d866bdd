"""tf.train.ClusterSpec and tf.train.Server."""
import atexit
import threading

from muster import _muster, _protos, _tasks

__all__ = ["ClusterSpec", "LocalCluster", "Server"]


def _is_message(value, name):
    """Whether the value is such a message, made by our classes or by those of another TensorFlow in this process."""
    descriptor = getattr(value, "DESCRIPTOR", None)
    return getattr(descriptor, "full_name", None) == "tensorflow." + name and hasattr(value, "SerializeToString")


def _text(value, what):
    if isinstance(value, bytes):
        return value.decode("utf-8")
    if not isinstance(value, str):
        raise TypeError("%s %r must be bytes or unicode" % (what, value))
    return value


class ClusterSpec(object):
    """Jobs, their tasks and the addresses of those."""

    def __init__(self, cluster):
        if isinstance(cluster, dict):
            self._jobs = {name: self._numbered(name, tasks) for name, tasks in cluster.items()}
        elif isinstance(cluster, ClusterSpec):
            self._jobs = {name: dict(tasks) for name, tasks in cluster._jobs.items()}
        elif _is_message(cluster, "ClusterDef"):
            self._jobs = {job.name: dict(job.tasks) for job in cluster.job}
        else:
            raise TypeError("`cluster` must be a dictionary mapping one or more job names to lists of network "
                            "addresses, or a `ClusterDef` protocol buffer")
        for name, tasks in self._jobs.items():
            _text(name, "Job name")
            for address in tasks.values():
                _text(address, "Task address")

    @staticmethod
    def _numbered(job, tasks):
        if isinstance(tasks, (list, tuple)):
            return dict(enumerate(tasks))
        if isinstance(tasks, dict):
            return {int(number): address for number, address in tasks.items()}
        raise TypeError("The tasks for job %r must be a list or a dictionary from integers to strings." % (job,))

    def _job(self, name):
        if name not in self._jobs:
            raise ValueError("No such job in cluster: %r" % (name,))
        return self._jobs[name]

    def __bool__(self):
        return bool(self._jobs)

    def __eq__(self, other):
        return self._jobs == (other._jobs if isinstance(other, ClusterSpec) else other)

    def __ne__(self, other):
        return not self == other

    __hash__ = None

    def __repr__(self):
        jobs = self.as_dict()
        return "ClusterSpec({%s})" % ", ".join("%r: %r" % (name, jobs[name]) for name in sorted(jobs))

    @property
    def jobs(self):
        return list(self._jobs)

    def num_tasks(self, job_name):
        return len(self._job(job_name))

    def task_indices(self, job_name):
        return sorted(self._job(job_name))

    def task_address(self, job_name, task_index):
        job = self._job(job_name)
        if task_index not in job:
            raise ValueError("No task with index %r in job %r" % (task_index, job_name))
        return job[task_index]

    def job_tasks(self, job_name):
        """Addresses by number, None where there is no such task."""
        job = self._job(job_name)
        return [job.get(number) for number in range(max(job, default=-1) + 1)]

    def as_dict(self):
        """Jobs as lists where their numbers have no holes, as dictionaries otherwise."""
        result = {}
        for name, job in self._jobs.items():
            dense = job and max(job) + 1 == len(job)
            result[name] = self.job_tasks(name) if dense else {number: job[number] for number in sorted(job)}
        return result

    def as_cluster_def(self):
        result = _protos.get("tensorflow.ClusterDef")()
        for name in sorted(self._jobs, key=lambda job: _text(job, "Job name")):
            job = result.job.add(name=_text(name, "Job name"))
            for number, address in sorted(self._jobs[name].items()):
                job.tasks[number] = _text(address, "Task address")
        return result


def _make_server_def(server_or_cluster_def, job_name, task_index, protocol, config):
    result = _protos.get("tensorflow.ServerDef")()
    if _is_message(server_or_cluster_def, "ServerDef"):
        result.MergeFromString(server_or_cluster_def.SerializeToString())
    else:
        try:
            cluster = ClusterSpec(server_or_cluster_def)
        except TypeError:
            raise TypeError("Could not convert `server_or_cluster_def` to a `tf.train.ServerDef` or "
                            "`tf.train.ClusterSpec`.")
        if job_name is None:
            if len(cluster.jobs) != 1:
                raise ValueError("Must specify an explicit `job_name`.")
            job_name = cluster.jobs[0]
        if task_index is None:
            numbers = cluster.task_indices(job_name)
            if len(numbers) != 1:
                raise ValueError("Must specify an explicit `task_index`.")
            task_index = numbers[0]
        result.cluster.CopyFrom(cluster.as_cluster_def())
        protocol = "grpc" if protocol is None else protocol
    if job_name is not None:
        result.job_name = job_name
    if task_index is not None:
        result.task_index = task_index
    if protocol is not None:
        result.protocol = protocol
    if config is not None:
        result.default_session_config.MergeFromString(config.SerializeToString())
    return result


# A server serves until it is stopped, even after its Python object is gone: sessions find it by its target.
_running = set()
_running_lock = threading.Lock()


def _stop_all():
    with _running_lock:
        servers = list(_running)
    for server in servers:
        server.stop(grace=0)


atexit.register(_stop_all)


class Server(object):
    """A task of a cluster in this process.

    TLS and tokens come from the environment (MUSTER_TLS_CERT, MUSTER_TLS_KEY, MUSTER_TLS_CA, MUSTER_AUTH_TOKEN_FILE)
    where the arguments do not say otherwise. `bind` is the address to listen on instead of the cluster's. `metrics_port`,
    or MUSTER_METRICS_PORT, is where /metrics and /healthz are served.
    """

    def __init__(self, server_or_cluster_def, job_name=None, task_index=None, protocol=None, config=None, start=True,
                 *, bind="", tls_cert="", tls_key="", tls_ca="", auth_token_file="", metrics_port=None):
        self._server_def = _make_server_def(server_or_cluster_def, job_name, task_index, protocol, config)
        self._server = _muster.new_server(self._server_def.SerializeToString(), bind=bind, tls_cert=tls_cert,
                                          tls_key=tls_key, tls_ca=tls_ca, auth_token_file=auth_token_file,
                                          metrics_port=-1 if metrics_port is None else int(metrics_port))
        if start:
            self.start()

    def start(self):
        self._server.start()
        with _running_lock:
            _running.add(self)

    def join(self):
        """Waits until the server is stopped; Ctrl-C ends the wait."""
        self._server.join()
        if _tasks.current() is not None:
            raise SystemExit(0)  # a process would have been stopped here

    def stop(self, grace=None):
        """Ends the server: steps under way have `grace` seconds (2 unless given), then they are cancelled."""
        self._server.stop(-1 if grace is None else float(grace))
        with _running_lock:
            _running.discard(self)

    @property
    def server_def(self):
        return self._server_def

    @property
    def target(self):
        return self._server.target

    @staticmethod
    def create_local_server(config=None, start=True):
        return Server({"local": ["localhost:0"]}, protocol="grpc", config=config, start=start)


class LocalCluster(object):
    """A whole cluster in this process, without a socket between its tasks; Muster's own.

        with tf.train.LocalCluster({"ps": 1, "worker": 2}) as cluster:
            with tf.Session(cluster.target("worker", 0)) as session:
                ...
    """

    def __init__(self, jobs):
        self._cluster = _muster.new_local_cluster(sorted(jobs.items()))
        tasks = {}
        for (job, number), address in self._cluster.addresses():
            tasks.setdefault(job, {})[number] = address
        self.cluster_spec = ClusterSpec(tasks)

    def target(self, job_name, task_index=0):
        """What a session at this task is given."""
        return self._cluster.target(job_name, task_index)

    def stop(self):
        """Cancels what runs and ends all tasks."""
        self._cluster.stop()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.stop()
