"""`muster launch --hosts`: tasks that another command starts; here one that stands in for SSH."""
import os
import re
import signal
import subprocess
import time

import pytest
from test_launch import SCRIPT

STAND_IN = """#!/bin/sh
# ssh OPTION... HOST COMMAND: in another session, with an environment of its own, as on another machine.
while [ $# -gt 2 ]; do shift; done
echo "to $1" >>"%s"
exec env -i PATH="$PATH" HOME="$HOME" setsid --wait sh -c "cd / && $2"
"""


@pytest.fixture
def stand_in(tmp_path):
    path = tmp_path / "stand_in_ssh"
    path.write_text(STAND_IN % (tmp_path / "calls"))
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def hosts(tmp_path):
    path = tmp_path / "hosts"
    path.write_text("# tasks of this machine\nlocalhost slots=2\nsomebody@localhost\n")
    return str(path)


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "trainer.py"
    path.write_text("import os\nassert os.environ['GREETING'] == 'hello'\n" + SCRIPT)
    return "trainer.py"


def words(muster_program, stand_in, hosts):
    return [muster_program, "launch", "--hosts", hosts, "--ssh", stand_in + " -o Option", "--env", "GREETING=hello"]


def left_over(text):
    return subprocess.run(["pgrep", "-f", "--", text], capture_output=True, text=True).stdout


def wait_until_gone(text, seconds=60):
    end = time.time() + seconds
    while left_over(text):
        assert time.time() < end, left_over(text)
        time.sleep(0.1)


def test_trains_on_hosts(muster_program, stand_in, hosts, script, tmp_path):
    done = subprocess.run(words(muster_program, stand_in, hosts) + ["--ps", "1", "--workers", "2", script],
                          cwd=tmp_path, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr
    for task in ("ps 0", "worker 0", "worker 1"):
        assert "[%s] started %s" % (task, task) in done.stdout
    assert done.stdout.count("loss = 0.01") == 2
    calls = (tmp_path / "calls").read_text().splitlines()
    assert sorted(calls) == ["to localhost", "to localhost", "to somebody@localhost"]
    wait_until_gone("--ps_hosts=localhost.*" + script)


def test_remote_tasks_end_with_the_launcher(muster_program, stand_in, hosts, script, tmp_path):
    process = subprocess.Popen(words(muster_program, stand_in, hosts) + ["--workers", "2", script, "--steps", "1000000",
                                                                         "--serve_only=77"],
                               cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines = []
    while sum("started worker" in line for line in lines) < 2:
        lines.append(process.stdout.readline())
        assert lines[-1], "".join(lines)
    assert left_over("serve_only=77")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    wait_until_gone("serve_only=77")


def test_a_remote_failure_is_the_result(muster_program, stand_in, hosts, script, tmp_path):
    done = subprocess.run(words(muster_program, stand_in, hosts) + ["--workers", "2", script, "--steps", "100000",
                                                                    "--fail_task", "1"],
                          cwd=tmp_path, capture_output=True, text=True, timeout=180)
    assert done.returncode == 7, done.stdout + done.stderr
    assert "[worker 1] about to fail" in done.stderr


def test_a_remote_task_is_restarted(muster_program, stand_in, hosts, tmp_path):
    program = tmp_path / "once.sh"
    program.write_text("#!/bin/sh\ncase \"$*\" in *job_name=ps*) exec sleep 600;; esac\n"
                       "[ -e ran ] && { echo \"again at $2\"; exit 0; }\ntouch ran\necho \"first at $2\"\nexit 3\n")
    program.chmod(0o755)
    done = subprocess.run(words(muster_program, stand_in, hosts) + ["--max-restarts", "1", "./once.sh"],
                          cwd=tmp_path, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr
    first, again = [line.split(" at ")[1] for line in done.stdout.splitlines() if " at --" in line]
    assert first == again


def test_what_cannot_be_reached_is_named(muster_program, hosts, tmp_path):
    refusing = tmp_path / "refuses"
    refusing.write_text("#!/bin/sh\necho no route to the host\nexit 255\n")
    refusing.chmod(0o755)
    done = subprocess.run([muster_program, "launch", "--hosts", hosts, "--ssh", str(refusing), "/bin/true"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert re.search(r"cannot run on \S*localhost: \[.*\] no route to the host", done.stderr), done.stderr


@pytest.mark.parametrize("text, why", [("", "names none"), ("a slots=0\n", "line 1"), ("a\nb nodes=3\n", "line 2"),
                                       ("a slots=1\n", "slots for 1"), ("-oProxy\n", "is not a host")])
def test_wrong_files_are_explained(muster_program, tmp_path, text, why):
    path = tmp_path / "hosts"
    path.write_text(text)
    done = subprocess.run([muster_program, "launch", "--hosts", str(path), "--ps", "1", "x.py"], capture_output=True,
                          text=True)
    assert done.returncode == 2
    assert why in done.stderr
