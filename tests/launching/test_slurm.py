"""`srun muster launch` with a real munged, slurmctld and slurmd on this machine: overcommitted, without cgroups."""
import os
import signal
import socket
import subprocess
import time

import pytest
from real_programs import expect_trained, find_programs, free_block, run

CONFIGURATION = """
ClusterName=muster
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
MpiDefault=none
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
SlurmdParameters=config_overrides
SlurmctldPort={control_port}
SlurmdPort={node_port}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmdSpoolDir={folder}/spool
StateSaveLocation={folder}/state
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SchedulerType=sched/builtin
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES OverSubscribe=YES MaxTime=INFINITE State=UP
"""


class Slurm(object):
    """Daemons in the foreground, as children of the tests."""

    def __init__(self, folder):
        self.srun, self._sinfo, munged, control, node = find_programs("srun", "sinfo", "munged", "slurmctld", "slurmd")
        self._folder, self._daemons = str(folder), []
        for name in ("munge", "spool", "state"):
            (folder / name).mkdir()
        for path in [folder, *folder.parents][:-1]:  # munged wants its socket reachable for all users
            if os.stat(path).st_uid == os.geteuid() and not os.stat(path).st_mode & 0o001:
                os.chmod(path, os.stat(path).st_mode | 0o011)
        key = folder / "munge" / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        port = free_block(2)
        configuration = folder / "slurm.conf"
        configuration.write_text(CONFIGURATION.format(
            host=socket.gethostname().partition(".")[0], folder=folder, control_port=port, node_port=port + 1))
        self.environment = dict(os.environ, SLURM_CONF=str(configuration))
        munge = str(folder / "munge")
        self._start([munged, "--foreground", "--key-file=%s/key" % munge, "--socket=%s/socket" % munge,
                     "--pid-file=%s/pid" % munge, "--log-file=%s/log" % munge, "--seed-file=%s/seed" % munge])
        self._wait("munged", lambda: os.path.exists(munge + "/socket"))
        self._start([control, "-D", "-f", str(configuration)])
        self._start([node, "-D", "-f", str(configuration)])
        self._wait("an idle node", lambda: "idle" in run([self._sinfo, "-h", "-o", "%T"], env=self.environment).stdout)

    def _start(self, words):
        log = open(os.path.join(self._folder, os.path.basename(words[0]) + ".out"), "w")
        self._daemons.append(subprocess.Popen(words, env=self.environment, stdout=log, stderr=log,
                                              stdin=subprocess.DEVNULL))

    def _wait(self, what, is_there, seconds=120):
        end = time.time() + seconds
        while not is_there():
            if time.time() > end or any(daemon.poll() is not None for daemon in self._daemons):
                raise AssertionError("no %s:\n%s" % (what, self.logs()))
            time.sleep(0.2)

    def logs(self):
        texts = []
        for name in sorted(os.listdir(self._folder)):
            if name.endswith((".log", ".out")):
                with open(os.path.join(self._folder, name), errors="replace") as log:
                    texts.append("--- %s\n%s" % (name, log.read()[-4000:]))
        return "\n".join(texts)

    def step(self, tasks, *words):
        return run([self.srun, "--overcommit", "--ntasks", str(tasks), *words], env=self.environment)

    def close(self):
        for daemon in reversed(self._daemons):
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    if os.geteuid() != 0:
        pytest.skip("Slurm's daemons are started by root only")
    cluster = Slurm(tmp_path_factory.mktemp("slurm"))
    yield cluster
    cluster.close()


def test_a_job_of_three_tasks_trains_and_ends(slurm, muster_program, digits):
    done = slurm.step(3, muster_program, "launch", *digits)
    expect_trained(done, workers=2)


def test_two_parameter_servers_and_given_ports(slurm, muster_program, digits):
    done = slurm.step(4, muster_program, "launch", "--ps", "2", "--port", str(free_block(5)), *digits)
    expect_trained(done, workers=2)


def test_a_failure_ends_the_step(slurm, muster_program, tmp_path):
    program = tmp_path / "program.sh"
    program.write_text("#!/bin/sh\ncase \"$*\" in *job_name=worker*task_index=1*) echo fails; exit 5;; esac\nsleep 600\n")
    program.chmod(0o755)
    done = slurm.step(3, muster_program, "launch", str(program))
    assert done.returncode == 5, done.stdout + done.stderr
    assert "[worker 1] fails" in done.stdout
