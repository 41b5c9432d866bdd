"""10,000 sessions from 50 threads, half of them dropped without closing: nothing is left of them."""
import importlib.util
import os
import re
import subprocess
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
_spec = importlib.util.spec_from_file_location("cluster_conftest", os.path.join(HERE, "..", "cluster", "conftest.py"))
_cluster = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_cluster)
muster_program = _cluster.muster_program
start_cluster = _cluster.start_cluster

THREADS = 50
# Pools of gRPC grow and shrink a little with what happens at once, up to a limit of their own.
ELASTIC = ("grpc_global_tim", "event_engine", "default-executo", "resolver-execut")
MOST_ELASTIC = 16 + 4 * os.cpu_count()
IDLE_THREADS = 25  # seconds after which gRPC lets threads go that have nothing to do, and some
FIRST = 1000
REST = int(os.environ.get("MUSTER_SOAK_SESSIONS", "10000")) - FIRST


def _held(pid):
    """File descriptors, threads (but for elastic ones of gRPC) and KB of memory of a process."""
    with open("/proc/%d/status" % pid) as file:
        status = file.read()
    names = []
    for thread in os.listdir("/proc/%d/task" % pid):
        with open("/proc/%d/task/%s/comm" % (pid, thread)) as file:
            names.append(file.read().strip())
    elastic = sum(name in ELASTIC for name in names)
    assert elastic < MOST_ELASTIC, names
    memory = int(re.search(r"VmRSS:\s+(\d+)", status).group(1))
    return len(os.listdir("/proc/%d/fd" % pid)), len(names) - elastic, memory


def _settled(pids):
    """The same of several, once nothing changes any more."""
    time.sleep(IDLE_THREADS)
    end = time.time() + 60
    before = None
    while time.time() < end:
        now = [_held(pid)[:2] for pid in pids]
        if now == before:
            return [_held(pid) for pid in pids]
        before = now
        time.sleep(4)  # longer than the grace of dropped sessions
    raise AssertionError("descriptors and threads still change: %s" % before)


def test_nothing_is_left_of_sessions(start_cluster, root):
    cluster = start_cluster(flags=["--orphan-grace", "1"], environment={"MALLOC_ARENA_MAX": "2"}, ps=1, worker=1)
    for task in cluster.tasks.values():  # a line for each session that was dropped
        threading.Thread(target=task.process.stderr.read, daemon=True).start()
    program = os.path.join(root, "build", _cluster.PRESET, "bin", "soak")
    client = subprocess.Popen([program, cluster.target(), str(THREADS), str(FIRST), str(REST)], text=True,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        names = ["ps", "worker", "client"]
        pids = [cluster.tasks["ps", 0].process.pid, cluster.tasks["worker", 0].process.pid, client.pid]
        assert client.stdout.readline() == "done\n", client.stderr.read()
        before = _settled(pids)
        start = time.time()
        client.stdin.write("go\n")
        client.stdin.flush()
        assert client.stdout.readline() == "done\n", client.stderr.read()
        took = time.time() - start
        after = _settled(pids)
        for name, first, last in zip(names, before, after):
            print("%s: %d descriptors, %d threads, %d KB after %d sessions; %d, %d, %d KB after %d"
                  % ((name,) + first + (FIRST,) + last + (FIRST + REST,)))
        print("%.0f sessions a second" % (REST / took))
        for name, first, last in zip(names, before, after):
            assert first[:2] == last[:2], name
            assert last[2] - first[2] < 8 * 1024, name
    finally:
        client.kill()
        client.communicate()
