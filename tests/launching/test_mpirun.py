"""`mpirun -np 3 muster launch`: every rank is a task."""
import os
import signal
import subprocess
import time

from real_programs import expect_trained, find_programs, run

MPIRUN = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]


def test_trains_on_digits(muster_program, digits, tmp_path):
    [mpirun] = find_programs("mpirun")
    environment = dict(os.environ, TMPDIR=str(tmp_path))
    done = run([mpirun, *MPIRUN, "-np", "3", muster_program, "launch", *digits], env=environment)
    expect_trained(done, workers=2)
    assert not [name for name in os.listdir(tmp_path) if name.startswith("muster-")]


def test_ranks_meet_in_a_shared_folder(muster_program, digits, tmp_path):
    [mpirun] = find_programs("mpirun")
    done = run([mpirun, *MPIRUN, "-np", "4", muster_program, "launch", "--ps", "2", "--rendezvous", str(tmp_path), *digits])
    expect_trained(done, workers=2)


def test_a_failure_ends_all(muster_program, tmp_path):
    [mpirun] = find_programs("mpirun")
    program = tmp_path / "program.sh"
    program.write_text("#!/bin/sh\ncase \"$*\" in *job_name=worker*task_index=1*) echo fails; exit 5;; esac\nsleep 600\n")
    program.chmod(0o755)
    done = run([mpirun, *MPIRUN, "-np", "3", muster_program, "launch", str(program)])
    assert done.returncode != 0
    assert "[worker 1] fails" in done.stdout + done.stderr
    end = time.time() + 60
    while subprocess.run(["pgrep", "-f", str(program)], capture_output=True).stdout:
        assert time.time() < end, "tasks are left"
        time.sleep(0.1)


def test_a_signal_ends_all(muster_program, tmp_path):
    [mpirun] = find_programs("mpirun")
    program = tmp_path / "program.sh"
    program.write_text("#!/bin/sh\necho runs\nexec sleep 600\n")
    program.chmod(0o755)
    process = subprocess.Popen([mpirun, *MPIRUN, "-np", "3", muster_program, "launch", str(program)],
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL)
    lines = []
    while sum("] runs" in line for line in lines) < 3:
        lines.append(process.stdout.readline())
        assert lines[-1], "".join(lines)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=120)
    assert process.returncode != 0
