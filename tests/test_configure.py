"""CMake configures on machines that have a part of what the build can use only."""
import subprocess

# The folder of the benchmarks by itself: the rest of the project does not look for MPI.
PROJECT = """
cmake_minimum_required(VERSION 3.25)
project(part LANGUAGES CXX)
add_library(muster INTERFACE)
add_subdirectory(%s benchmarks)
"""

# Open MPI's compiler without libopenmpi-dev: it names a folder of headers that are not installed.
COMPILER = """#!/bin/sh
for word; do
  case $word in
    -showme:compile | --showme:compile | -show | -compile_info) echo "-I%(folder)s/openmpi/include -pthread"; exit 0 ;;
    -showme:link | --showme:link | -link_info) echo "-L%(folder)s/lib -lmpi_cxx -lmpi"; exit 0 ;;
  esac
done
exec c++ "$@"
"""


def test_mpi_without_its_headers(root, tmp_path, monkeypatch):
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("mpicxx", "mpic++", "mpiCC", "mpicc", "mpirun", "mpiexec"):
        path = programs / name
        path.write_text(COMPILER % {"folder": tmp_path / "absent"})
        path.chmod(0o755)
    monkeypatch.setenv("PATH", "%s:/usr/bin:/bin" % programs)
    (tmp_path / "CMakeLists.txt").write_text(PROJECT % (root / "benchmarks"))
    # An empty folder of headers: none is looked for, this machine might have some.
    done = subprocess.run(["cmake", "-S", str(tmp_path), "-B", str(tmp_path / "build"), "-G", "Ninja", "-DMPI_HEADER_DIR="],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "allreduce_bench" in (tmp_path / "build" / "build.ninja").read_text()
