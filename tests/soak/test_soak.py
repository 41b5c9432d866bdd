"""13,000 sessions from 50 threads, half of them dropped without closing, leave nothing behind."""
import collections
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
# All threads are counted, but those of these pools, four of gRPC, need not stay equal. A pool starts a thread when all it has are
# busy at some moment, which may happen for the first time after any number of sessions, and offers no way to set its
# size or to fill it beforehand. What holds is its limit: twice the processors for executors, and for timers and events
# what can be due at once. The same goes for our own that wait for sockets.
POOLS = {"muster-fast": 4, "default-executo": 2 * os.cpu_count(), "resolver-execut": 2 * os.cpu_count(),
         "event_engine": 8 + 2 * os.cpu_count(), "grpc_global_tim": 8}
IDLE_THREADS = 35  # seconds after which gRPC lets threads go that have nothing to do, and some
# Free memory is returned to the system, so the rest is in use.
MALLOC = {"MALLOC_ARENA_MAX": "2", "MALLOC_TRIM_THRESHOLD_": "131072"}
FIRST = 6000  # until the number of dropped sessions that wait for their end is stable
MEMORY_KB = 8 * 1024
REST = int(os.environ.get("MUSTER_SOAK_SESSIONS", "13000")) - FIRST


def _descriptors(pid):
    """The number of descriptors by kind."""
    found = collections.Counter()
    for descriptor in os.listdir("/proc/%d/fd" % pid):
        try:
            found[os.readlink("/proc/%d/fd/%s" % (pid, descriptor))] += 1
        except OSError:  # it has just been closed
            pass
    return found


def _held(pid):
    """File descriptors but for those that threads are woken with (a thread has one from the first time that it waits for a
    call; all of them where there are more than threads), threads by their names but for pools (all of them where a pool is
    over its limit), KB of memory and the number of all threads."""
    with open("/proc/%d/status" % pid) as file:
        status = file.read()
    names = []
    for thread in os.listdir("/proc/%d/task" % pid):
        try:
            with open("/proc/%d/task/%s/comm" % (pid, thread)) as file:
                names.append(file.read().strip())
        except OSError:  # it has just ended
            pass
    threads = collections.Counter(names)
    if all(threads[pool] <= limit for pool, limit in POOLS.items()):
        for pool in POOLS:
            threads.pop(pool, None)
    descriptors = _descriptors(pid)
    if descriptors["anon_inode:[eventfd]"] <= len(names):
        del descriptors["anon_inode:[eventfd]"]
    memory = int(re.search(r"VmRSS:\s+(\d+)", status).group(1))
    return sum(descriptors.values()), dict(threads), memory, len(names)


def _settled(pids):
    """The same of several, once nothing changes any more."""
    time.sleep(IDLE_THREADS)
    end = time.time() + 180
    before = None
    while time.time() < end:
        now = [_held(pid)[:2] for pid in pids]
        if now == before and not any(pool in threads for _, threads in now for pool in POOLS):
            return [_held(pid) for pid in pids]
        before = now
        time.sleep(4)  # longer than the grace of dropped sessions
    raise AssertionError("descriptors and threads still change: %s" % before)


def test_nothing_is_left_of_sessions(start_cluster, root):
    cluster = start_cluster(flags=["--orphan-grace", "1"], environment=MALLOC, ps=1, worker=1)
    for task in cluster.tasks.values():  # a line for each session that was dropped
        threading.Thread(target=task.process.stderr.read, daemon=True).start()
    program = os.path.join(root, "build", _cluster.PRESET, "bin", "soak")
    client = subprocess.Popen([program, cluster.target(), str(THREADS), str(FIRST), str(REST)], text=True,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env=dict(os.environ, **MALLOC))
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
            print("%s: %d descriptors, %s threads, %d KB, %d threads with the pools after %d sessions; %d, %s, %d KB, %d "
                  "after %d" % ((name,) + first + (FIRST,) + last + (FIRST + REST,)))
        print("%.0f sessions a second" % (REST / took))
        for name, first, last in zip(names, before, after):
            assert first[:2] == last[:2], name
            assert last[2] - first[2] < MEMORY_KB, name
    finally:
        client.kill()
        client.communicate()
