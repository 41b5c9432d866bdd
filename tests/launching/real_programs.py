"""What the tests of schedulers share: real daemons and commands of Debian. Tests of missing ones are skipped."""
import os
import shutil
import socket
import subprocess

import pytest


def find_programs(*names):
    """Paths of programs, /usr/sbin included."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    found = [shutil.which(name, path=path) for name in names]
    if None in found:
        pytest.skip("%s is not installed: `make setup-cluster` installs it" % names[found.index(None)])
    return found


def free_block(count):
    """The first of `count` free ports in a row, below those that the system gives out by itself."""
    for first in range(20000 + os.getpid() % 1000 * 10, 32000, count):
        held = [socket.socket() for _ in range(count)]
        try:
            for at, one in enumerate(held):
                one.bind(("", first + at))
            return first
        except OSError:
            continue
        finally:
            for one in held:
                one.close()
    raise AssertionError("no %d free ports in a row" % count)


def expect_trained(done, workers):
    assert done.returncode == 0, done.stdout + done.stderr
    for worker in range(workers):
        assert "[worker %d] worker %d made " % (worker, worker) in done.stdout, done.stdout + done.stderr
    assert "[worker 0] test accuracy" in done.stdout


def run(words, timeout=300, **kwargs):
    return subprocess.run(words, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL, **kwargs)
