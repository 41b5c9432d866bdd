"""The rows of `make bench`: which program measures them, how they are shown and what is wanted of them."""
import collections

# amount: 1 for a time, else what one step moves, and the row is a rate. target: Muster's number divided by
# TensorFlow's, at most for times and sizes, at least for rates; earlier: the target of an earlier stage; fast: what
# MUSTER_FAST is, where it is set; of: which function of the program measures it, where it has another name.
Row = collections.namedtuple("Row", "name program unit scale target earlier rate fast of", defaults=[None, False, None, None])
GIB = 1.0 / (1 << 30)



def _over_network(row, target):
    """The same row between processes that use links as between machines."""
    return row._replace(name=row.name + "_network", target=target, earlier=None, fast="network", of=row.of or row.name)


ROWS = [
    Row("null_step", "local_steps.py", "us", 1e6, 0.15, 1 / 3),
    Row("null_outside", "cluster_steps.py", "us", 1e6, 0.1, 0.7),
    Row("null_over_grpc", "cluster_steps.py", "us", 1e6, 0.5, 0.7, fast="0", of="null_outside"),
    Row("null_from_worker", "cluster_steps.py", "us", 1e6, 0.1, 0.7),
    Row("pull_scalar", "cluster_steps.py", "us", 1e6, 0.08, 0.7),
    Row("pull_1mb", "cluster_steps.py", "GiB/s", (1 << 20) * GIB, None, 1.2, rate=True),
    Row("pull_64mb", "cluster_steps.py", "GiB/s", (1 << 26) * GIB, 6, 1.2, rate=True),
    Row("push_1mb", "cluster_steps.py", "GiB/s", (1 << 20) * GIB, None, 1.2, rate=True),
    Row("push_64mb", "cluster_steps.py", "GiB/s", (1 << 26) * GIB, 3.5, 1.2, rate=True),
    Row("pull_200", "cluster_steps.py", "us", 1e6, 0.05, 0.7),
    Row("sparse_rows", "cluster_steps.py", "Mrows/s", 8192e-6, 8, rate=True),
    Row("mnist_step", "local_steps.py", "us", 1e6, 0.35, 1 / 1.5),
    Row("mnist_on_ps", "cluster_steps.py", "us", 1e6, 0.2),
    Row("wide_on_ps", "cluster_steps.py", "ms", 1e3, 0.6),
    Row("cnn_step", "local_steps.py", "ms", 1e3, 1.0, 1.2),
    Row("matmul_2048", "local_steps.py", "GFLOP/s", 2 * 2.048 ** 3, 1, 0.95, rate=True),
    Row("replicas_async", "replicas.py", "steps/s", 1, 4, 1.5, rate=True),
    Row("replicas_sync", "replicas.py", "steps/s", 1, 6, 1.5, rate=True),
    # Against TensorFlow's synchronous replicas.
    Row("replicas_allreduce", "replicas.py", "steps/s", 1, None, 1.5, rate=True),
    Row("build_graph", "local_steps.py", "us", 1e6, 0.1),
    Row("nodes_first_run", "local_steps.py", "ms", 1e3, 0.03),
    Row("nodes_later_step", "local_steps.py", "ms", 1e3, 0.4),
    Row("server_python", "startup.py", "ms", 1e3, 0.1),
    Row("server_serve", "startup.py", "ms", 1e3, 0.03),
    Row("idle_python", "startup.py", "MB", 1, 0.1),
    Row("idle_serve", "startup.py", "MB", 1, 0.05, 0.1),
    Row("start", "startup.py", "ms", 1e3, None, 0.2),
    Row("import_time", "startup.py", "ms", 1e3, None, 0.2),
    Row("memory", "startup.py", "MB", 1, None, 0.2),
    Row("checkpoint_write", "checkpoints.py", "ms", 1e3, None, 1),  # ours is on the disk at the end
    Row("checkpoint_read", "checkpoints.py", "ms", 1e3, None, 1),
]
_NETWORK = {"null_outside": 0.08, "null_from_worker": 0.06, "pull_scalar": 0.08, "pull_200": 0.05, "sparse_rows": 6, "mnist_on_ps": 0.2,
            "wide_on_ps": 0.4, "replicas_async": 4, "replicas_sync": 5}
ROWS += [_over_network(row, _NETWORK[row.name]) for row in ROWS if row.name in _NETWORK]

# Bytes between two tasks over TCP, against iperf3 (tcp_rows.py).
TCP = {"pull_64mb_tcp": 1 << 26, "push_64mb_tcp": 1 << 26}
TCP_TARGET = 0.95
TCP_ROWS = [Row(name, "cluster_steps.py", "GiB/s", size * GIB, None, rate=True, fast="network") for name, size in TCP.items()]

# Bytes of floats, summed over ranks that are processes: Muster against the best of the others. With 4 ranks (on few
# cores) only reported.
ALLREDUCE = {"allreduce_4kb": 4 << 10, "allreduce_1mb": 1 << 20, "allreduce_64mb": 64 << 20}


def shown(row, value):
    """A measured value (seconds, or megabytes) in the unit of its row."""
    return row.scale / value if row.rate else value * row.scale


def verdict(row, ratio, target):
    if target is None:
        return "-"
    met = ratio >= target if row.rate else ratio <= target
    return "%s %s%.3g" % ("ok  " if met else "MISS", ">=" if row.rate else "<=", target)
