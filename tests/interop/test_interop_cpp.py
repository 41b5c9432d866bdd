"""The C++ client (interop_client.cc) at clusters of either kind."""

import subprocess

import pytest

import interop_processes


@pytest.mark.parametrize("servers", ["stock", "muster_ps", "muster_master", "muster"])
def test_cpp_client(clusters, servers):
    program = interop_processes.MUSTER.parent / "interop_client"
    assert program.exists(), "%s is not built" % program
    done = subprocess.run([str(program), clusters(servers).targets["worker/0"]], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
