"""The source distribution holds what the build and the package are made of."""
import subprocess
import sys
import tarfile

BUILD = "import sys; from scikit_build_core.build import build_sdist; build_sdist(sys.argv[1])"

# Folders of tests and data, which neither the build nor users need.
LEFT_OUT = ("data/", "tests/", "benchmarks/", "python/tests/")


def test_the_source_distribution_leaves_nothing_else_out(root, tmp_path):
    done = subprocess.run([sys.executable, "-c", BUILD, str(tmp_path)], cwd=root, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    archive, = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        packed = {name.partition("/")[2] for name in files.getnames()}
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=root, capture_output=True,
                            text=True, check=True).stdout.splitlines()
    wanted = {name for name in listed if (root / name).is_file() and not name.startswith(LEFT_OUT)}
    assert {"python/muster/data/dataset.py", "muster/ops/data/dataset.cc"} <= wanted
    assert not wanted - packed, "left out: %s" % sorted(wanted - packed)
    assert packed - wanted <= {"PKG-INFO"}, "packed besides: %s" % sorted(packed - wanted)
