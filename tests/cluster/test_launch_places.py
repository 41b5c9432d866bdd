"""Which task of which cluster `muster launch` takes from Slurm, TF_CONFIG and names; it starts nothing here."""
import json
import os
import subprocess

import pytest

CLEARED = ("SLURM_", "OMPI_", "PMI", "TF_CONFIG", "JOB_COMPLETION_INDEX")


def show(muster_program, environment, *words, command=("launch", "--dry-run")):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(CLEARED)}
    return subprocess.run([muster_program, *command, *words, "script.py"], env=dict(clean, **environment),
                          capture_output=True, text=True, timeout=60)


def flags_of(done):
    assert done.returncode == 0, done.stderr
    return dict(word[2:].split("=") for word in done.stdout.splitlines()[0].partition(": ")[2].split())


def slurm(rank, nodes, tasks, **more):
    count = sum(int(part.partition("(x")[0]) * int(part.partition("(x")[2].rstrip(")") or 1) for part in tasks.split(","))
    return dict({"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0", "SLURM_PROCID": str(rank),
                 "SLURM_STEP_NUM_TASKS": str(count), "SLURM_STEP_NODELIST": nodes,
                 "SLURM_STEP_TASKS_PER_NODE": tasks}, **more)


def hosts(text):
    return [address.rpartition(":")[0] for address in text.split(",")]


@pytest.mark.parametrize("nodes, tasks, expected", [
    ("n1,n2", "1(x2)", ["n1", "n2"]),
    ("node[01-03,07]", "1(x4)", ["node01", "node02", "node03", "node07"]),
    ("a[1-2]b[8-9]", "1(x4)", ["a1b8", "a1b9", "a2b8", "a2b9"]),
    ("x,y[1,3-4]z,w", "1(x5)", ["x", "y1z", "y3z", "y4z", "w"]),
    ("n[9-10]", "2,1", ["n9", "n9", "n10"]),
    ("n[1-3]", "2(x2),1", ["n1", "n1", "n2", "n2", "n3"]),
    ("solo", "3", ["localhost"] * 3),
])
def test_slurm_lists(muster_program, nodes, tasks, expected):
    flags = flags_of(show(muster_program, slurm(0, nodes, tasks)))
    assert hosts(flags["ps_hosts"] + "," + flags["worker_hosts"]) == expected


def test_every_rank_sees_the_same_cluster(muster_program):
    all_flags = [flags_of(show(muster_program, slurm(rank, "n[1-2]", "2(x2)", SLURM_NODEID=str(rank // 2)), "--ps", "2"))
                 for rank in range(4)]
    assert len({(flags["ps_hosts"], flags["worker_hosts"]) for flags in all_flags}) == 1
    assert [(flags["job_name"], flags["task_index"]) for flags in all_flags] == [
        ("ps", "0"), ("ps", "1"), ("worker", "0"), ("worker", "1")]
    addresses = (all_flags[0]["ps_hosts"] + "," + all_flags[0]["worker_hosts"]).split(",")
    assert len(set(addresses)) == 4


def test_slurm_cyclic_and_port(muster_program):
    flags = flags_of(show(muster_program, slurm(1, "n[1-2]", "2,1", SLURM_DISTRIBUTION="cyclic", SLURM_NODEID="1"),
                          "--port", "5000"))
    assert (flags["ps_hosts"], flags["worker_hosts"]) == ("n1:5000", "n2:5001,n1:5002")


@pytest.mark.parametrize("environment, words, why", [
    (slurm(0, "n[1-", "1(x2)"), (), "']' is missing"),
    (slurm(0, "n[2-1]", "1(x2)"), (), "'2-1' is not a range"),
    (dict(slurm(0, "n[1-2]", "1(x2)"), SLURM_STEP_TASKS_PER_NODE="1(y2)"), (),
     "is neither N nor N(xTIMES)"),
    (slurm(0, "n[1-3]", "1(x2)"), (), "names 3 nodes, and tasks for 2"),
    (slurm(0, "n[1-2]", "1(x2)"), ("--ps", "2"), "no worker is left"),
    (slurm(0, "n[1-2]", "1(x2)"), ("--workers", "5"), "do not fit"),
    (slurm(0, "n[1-2]", "1(x2)", SLURM_NODEID="1"), (), "has put task 0 on node 1"),
    (slurm(0, "n[1-4000000000]", "1(x2)"), (), "is not a range"),
    ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
      "PMIX_NAMESPACE": "1"}, (), "give --rendezvous a folder"),
    ({"TF_CONFIG": "{"}, (), "TF_CONFIG"),
    ({"TF_CONFIG": json.dumps({"cluster": {"worker": ["a:1"]}})}, (), "does not say which task"),
    ({"TF_CONFIG": json.dumps({"cluster": {"chief": ["a:1"], "master": ["b:1"]},
                               "task": {"type": "chief", "index": 0}})}, (), "more than one chief"),
    ({"TF_CONFIG": json.dumps({"cluster": {"worker": ["a:1"]}, "task": {"type": "ps", "index": 0}})}, (), "ps"),
    ({}, ("--job_name", "chief"), "ps or worker expected"),
    ({}, ("--job_name", "ps", "--ps", "2", "--ps_address", "ps:1", "--worker_address", "w:1"), "{} for the number"),
    ({}, ("--job_name", "ps", "--ps_address", "h:1", "--worker_address", "h:1"),
     "'h:1' of /job:worker/task:0 is already the address of /job:ps/task:0"),
    ({"JOB_COMPLETION_INDEX": "3"}, ("--job_name", "ps", "--ps_address", "p:1", "--worker_address", "w:1"),
     "there is no ps 3"),
])
def test_what_does_not_fit_is_explained(muster_program, environment, words, why):
    done = show(muster_program, environment, *words)
    assert done.returncode == 2, done.stdout
    assert why in done.stderr


def test_one_task_of_slurm_launches_here(muster_program):
    done = show(muster_program, dict(slurm(0, "n1", "1")), "--workers", "2")
    assert hosts(flags_of(done)["worker_hosts"]) == ["localhost", "localhost"]


KUBEFLOW = {"chief": ["c:2222"], "ps": ["p0:2222", "p1:2222"], "worker": ["w0:2222", "w1:2222"], "evaluator": ["e:2222"]}
SAGEMAKER = {"master": ["algo-1:2222"], "ps": ["algo-1:2223", "algo-2:2223"], "worker": ["algo-2:2222"]}


@pytest.mark.parametrize("cluster, task, expected", [
    (KUBEFLOW, {"type": "chief", "index": 0}, ("worker", "0", "p0:2222,p1:2222", "c:2222,w0:2222,w1:2222")),
    (KUBEFLOW, {"type": "worker", "index": "1"}, ("worker", "2", "p0:2222,p1:2222", "c:2222,w0:2222,w1:2222")),
    (KUBEFLOW, {"type": "ps", "index": 1}, ("ps", "1", "p0:2222,p1:2222", "c:2222,w0:2222,w1:2222")),
    (KUBEFLOW, {"type": "evaluator", "index": 0}, ("evaluator", "0", "p0:2222,p1:2222", "c:2222,w0:2222,w1:2222")),
    (SAGEMAKER, {"type": "worker", "index": 0}, ("worker", "1", "algo-1:2223,algo-2:2223", "algo-1:2222,algo-2:2222")),
    ({"worker": ["a:1", "b:1"]}, {"type": "worker", "index": 1}, ("worker", "1", "", "a:1,b:1")),
])
def test_tf_config(muster_program, cluster, task, expected):
    text = json.dumps({"cluster": cluster, "task": task, "environment": "cloud"})
    done = show(muster_program, {"TF_CONFIG": text})
    flags = flags_of(done)
    assert (flags["job_name"], flags["task_index"], flags["ps_hosts"], flags["worker_hosts"]) == expected
    assert done.stdout.splitlines()[1].partition("TF_CONFIG=")[2] == text
    # Numbers of tasks mean a cluster of one's own.
    assert hosts(flags_of(show(muster_program, {"TF_CONFIG": text}, "--workers", "1"))["worker_hosts"]) == ["localhost"]


def test_run_can_add_the_flags(muster_program, tmp_path):
    program = tmp_path / "says"
    program.write_text("#!/bin/sh\necho \"$@\"\n")
    program.chmod(0o755)
    text = json.dumps({"cluster": KUBEFLOW, "task": {"type": "worker", "index": 0}})
    for words, expected in (((), "--own\n"),
                            (("--cluster_flags",), "--ps_hosts=p0:2222,p1:2222 --worker_hosts=c:2222,w0:2222,w1:2222 "
                             "--job_name=worker --task_index=1 --own\n")):
        done = subprocess.run([muster_program, "run", *words, str(program), "--own"], env=dict(os.environ, TF_CONFIG=text),
                              capture_output=True, text=True)
        assert done.stdout == expected, done.stderr


def test_an_evaluator_does_not_serve(muster_program):
    text = json.dumps({"cluster": KUBEFLOW, "task": {"type": "evaluator", "index": 0}})
    done = subprocess.run([muster_program, "serve"], env=dict(os.environ, TF_CONFIG=text), capture_output=True, text=True,
                          timeout=60)
    assert done.returncode == 1
    assert "evaluator" in done.stderr


def test_names_with_numbers(muster_program):
    done = show(muster_program, {"JOB_COMPLETION_INDEX": "2"}, "--ps", "2", "--workers", "3", "--job_name", "worker",
                "--ps_address", "t-ps-{}.t-ps:2222", "--worker_address", "t-worker-{}.t-worker:2222")
    flags = flags_of(done)
    assert flags["ps_hosts"] == "t-ps-0.t-ps:2222,t-ps-1.t-ps:2222"
    assert flags["worker_hosts"].split(",")[2] == "t-worker-2.t-worker:2222"
    assert (flags["job_name"], flags["task_index"]) == ("worker", "2")
