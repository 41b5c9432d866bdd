"""`muster launch --hosts` over the real ssh and sshd of Debian, on this machine, with keys made for the test."""
import getpass
import os
import signal
import socket
import subprocess
import time

import pytest
from real_programs import expect_trained, find_programs, run

CONFIGURATION = """
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile {folder}/pid
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin yes
"""


@pytest.fixture(scope="module")
def ssh(tmp_path_factory):
    """The command that reaches the daemon."""
    client, daemon, keygen = find_programs("ssh", "sshd", "ssh-keygen")
    if os.geteuid() != 0:
        pytest.skip("sshd is started by root only")
    os.makedirs("/run/sshd", exist_ok=True)
    folder = tmp_path_factory.mktemp("ssh")
    for name in ("host_key", "user_key"):
        subprocess.run([keygen, "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    (folder / "authorized_keys").write_text((folder / "user_key.pub").read_text())
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    (folder / "sshd_config").write_text(CONFIGURATION.format(port=port, folder=folder))
    server = subprocess.Popen([daemon, "-D", "-e", "-f", str(folder / "sshd_config")], stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    words = [client, "-F", "none", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no",
             "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "-i", str(folder / "user_key"), "-p", str(port)]
    end = time.time() + 60
    while run([*words, "localhost", "true"]).returncode != 0:
        if time.time() > end or server.poll() is not None:
            server.kill()
            pytest.fail("sshd cannot be reached: %s" % server.communicate()[1])
        time.sleep(0.2)
    yield " ".join(words)
    server.terminate()
    server.wait()


@pytest.fixture
def hosts(tmp_path):
    path = tmp_path / "hosts"
    path.write_text("localhost slots=1\n%s@localhost\n" % getpass.getuser())
    return str(path)


def test_trains_on_digits(ssh, hosts, muster_program, digits):
    done = run([muster_program, "launch", "--hosts", hosts, "--ssh", ssh, "--ps", "1", "--workers", "2", *digits])
    expect_trained(done, workers=2)


def test_remote_tasks_end_when_the_link_breaks(ssh, hosts, muster_program, tmp_path):
    program = tmp_path / "program.sh"
    program.write_text("#!/bin/sh\necho runs\nexec sleep 600 # $0\n")
    program.chmod(0o755)
    process = subprocess.Popen([muster_program, "launch", "--hosts", hosts, "--ssh", ssh, str(program)],
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
    lines = []
    while sum("] runs" in line for line in lines) < 2:
        lines.append(process.stdout.readline())
        assert lines[-1], "".join(lines)
    started = subprocess.run(["pgrep", "-f", "launch-task --port"], capture_output=True, text=True).stdout.split()
    assert len(started) >= 2
    process.send_signal(signal.SIGKILL)
    process.communicate()
    end = time.time() + 60
    while any(os.path.exists("/proc/" + pid) for pid in started):
        assert time.time() < end, "tasks are left"
        time.sleep(0.1)
