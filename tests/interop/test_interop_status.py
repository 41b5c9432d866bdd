"""`muster status` where some tasks are TensorFlow's."""
import json
import subprocess
import time

import interop_processes


def status(target):
    done = subprocess.run([interop_processes.MUSTER, "status", "--json", "--target", target], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return {(task["job"], task["task"]): task for task in json.loads(done.stdout)["tasks"]}


def test_stock_tasks_are_shown_with_what_they_tell(clusters):
    cluster = clusters("muster_ps")
    end = time.time() + 60
    tasks = status(cluster.targets["ps/0"])
    while any(task["health"] != "healthy" for task in tasks.values()) and time.time() < end:
        time.sleep(0.2)
        tasks = status(cluster.targets["ps/0"])
    assert tasks["ps", 0]["kind"] == "muster" and tasks["ps", 0]["sessions"] == 0
    for number in range(2):
        worker = tasks["worker", number]
        assert worker["health"] == "healthy" and worker["kind"] == "tensorflow"
        assert worker["devices"] >= 1 and worker["steps"] is None


def test_a_stock_task_speaks_for_itself(clusters):
    tasks = status(clusters("muster_ps").targets["worker/1"])
    assert list(tasks) == [("worker", 1)]
    assert tasks["worker", 1]["kind"] == "tensorflow" and tasks["worker", 1]["health"] == "healthy"
