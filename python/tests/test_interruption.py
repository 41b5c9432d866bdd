"""Ctrl-C and SIGTERM in a training loop: the chief saves, one line says so, and the exit status tells the signal."""
import os
import signal
import subprocess
import sys
import textwrap

import muster as tf
import pytest
from muster.session import interruption

PROGRAM = """
    import sys, time
    import muster as tf

    def say(*words):
        print(*words, flush=True)

    folder, style = sys.argv[1:]
    step = tf.train.get_or_create_global_step()
    train = tf.assign_add(step, 1)

    def loop(session, stops):
        while not stops():
            say("step", int(session.run(train)))
            time.sleep(0.002)

    if style == "supervisor":
        supervisor = tf.train.Supervisor(logdir=folder, global_step=step)
        loop(supervisor.prepare_or_wait_for_session(), supervisor.should_stop)
    elif style == "managed":
        supervisor = tf.train.Supervisor(logdir=folder, global_step=step)
        with supervisor.managed_session() as session:
            loop(session, supervisor.should_stop)
    elif style == "catches":
        with tf.train.MonitoredTrainingSession(checkpoint_dir=folder) as session:
            try:
                loop(session, session.should_stop)
            except KeyboardInterrupt:
                say("caught", int(session.run(step)))
    else:
        class Ends(tf.train.SessionRunHook):
            def end(self, session):
                say("end")

        with tf.train.MonitoredTrainingSession(checkpoint_dir=folder, hooks=[Ends()]) as session:
            loop(session, session.should_stop)
    say("done")
"""

# Sends the signal to itself while C++ has one of its lines logged.
IN_A_LOG_LINE = """
    import logging, os, sys
    import muster as tf

    class Sends(logging.Handler):
        def emit(self, record):
            if sys.argv[2:] and "Saving checkpoints for 20 " in record.getMessage():
                os.kill(os.getpid(), int(sys.argv.pop()))

    tf.logging.set_verbosity(tf.logging.INFO)
    logging.getLogger("tensorflow").handlers = [Sends()]
    train = tf.assign_add(tf.train.get_or_create_global_step(), 1)
    with tf.train.MonitoredTrainingSession(checkpoint_dir=sys.argv[1], save_checkpoint_steps=10) as session:
        for _ in range(1000):
            session.run(train)
    print("done")
"""


@pytest.fixture
def trainer(tmp_path):
    script = tmp_path / "trainer.py"
    script.write_text(textwrap.dedent(PROGRAM))

    def run(style, number):
        """Interrupts the program at its twentieth step. Its exit status, the lines of both outputs."""
        process = subprocess.Popen([sys.executable, str(script), str(tmp_path / "model"), style], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, env=dict(os.environ, PYTHONUNBUFFERED="1"))
        try:
            for line in process.stdout:
                if line == "step 20\n":
                    break
            process.send_signal(number)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
        return process.returncode, out.splitlines(), [line for line in err.splitlines() if "WARNING" not in line]

    return run


def saved_step(tmp_path):
    prefix = tf.train.latest_checkpoint(str(tmp_path / "model"))
    return tf.train.load_variable(prefix, "global_step") if prefix else None


@pytest.mark.parametrize("style", ["monitored", "managed", "supervisor"])
@pytest.mark.parametrize("number, status, word", [(signal.SIGINT, -signal.SIGINT, "Interrupted"),
                                                  (signal.SIGTERM, 128 + signal.SIGTERM, "Terminated")])
def test_what_was_learnt_is_saved(trainer, tmp_path, style, number, status, word):
    code, out, err = trainer(style, number)
    assert code == status, err
    assert "done" not in out and "end" not in out
    assert err == ["%s; saved %s" % (word, tf.train.latest_checkpoint(str(tmp_path / "model")))], err
    steps = [int(line.split()[1]) for line in out if line.startswith("step")]
    assert saved_step(tmp_path) >= max(steps + [20])


@pytest.mark.parametrize("number, status, word", [(signal.SIGINT, -signal.SIGINT, "Interrupted"),
                                                  (signal.SIGTERM, 128 + signal.SIGTERM, "Terminated")])
def test_a_signal_in_a_log_line_is_not_lost(tmp_path, number, status, word):
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(IN_A_LOG_LINE), str(tmp_path / "model"), str(int(number))],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == status, done.stderr
    assert "done" not in done.stdout
    assert done.stderr == "%s; saved %s\n" % (word, tf.train.latest_checkpoint(str(tmp_path / "model")))
    assert 20 <= saved_step(tmp_path) < 1000


def test_the_line_says_why_nothing_was_saved(capsys):
    class Session(object):
        def close_interrupted(self):
            raise tf.errors.UnavailableError(
                None, None, "\n=====================\nUNAVAILABLE: From /job:ps/replica:0/task:0:\nSocket closed\nand more")

    interruption.close(Session(), KeyboardInterrupt())
    assert capsys.readouterr().err == "Interrupted; not saved: UNAVAILABLE: From /job:ps/replica:0/task:0: Socket closed\n"


def test_a_program_that_catches_the_interruption_goes_on(trainer):
    code, out, err = trainer("catches", signal.SIGINT)
    assert code == 0, err
    assert out[-1] == "done" and any(line.startswith("caught") for line in out)
    assert not any("Interrupted" in line for line in err)


def test_sigterm_ends_a_process_at_once_without_a_training_session():
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    with tf.Graph().as_default():
        tf.train.get_or_create_global_step()
        with tf.train.MonitoredTrainingSession():
            assert signal.getsignal(signal.SIGTERM) != signal.SIG_DFL
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
