"""The manifests against the schemas of Kubernetes, and their commands as `muster launch` reads them; the Dockerfile
through a linter. Nothing is deployed and no image is built: neither an engine nor a cluster is here."""
import fnmatch
import json
import os
import re
import shutil
import subprocess

import pytest
from real_programs import run

# In the interpreter that has the schemas: every document of the files, as JSON.
CHECK = """
import json, sys, yaml, kubernetes_validate
documents = []
for path in sys.argv[1:]:
    for document in yaml.safe_load_all(open(path)):
        kubernetes_validate.validate(document, "1.29", strict=True)
        documents.append(document)
print(json.dumps(documents))
"""


@pytest.fixture(scope="module")
def documents(root, deploy_python):
    folder = os.path.join(root, "deploy", "kubernetes")
    files = sorted(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".yaml"))
    done = run([deploy_python, "-c", CHECK, *files])
    assert done.returncode == 0, done.stderr
    return {(document["kind"], document["metadata"]["name"]): document for document in json.loads(done.stdout)}


def test_manifests_fit_the_schemas(documents):
    assert {kind for kind, _ in documents} == {"Service", "StatefulSet", "Job", "PersistentVolumeClaim"}


def test_a_wrong_manifest_does_not(root, deploy_python, tmp_path):
    text = open(os.path.join(root, "deploy", "kubernetes", "workers.yaml")).read()
    path = tmp_path / "wrong.yaml"
    path.write_text(text.replace("completions: 3", "completionz: 3"))
    assert run([deploy_python, "-c", CHECK, str(path)]).returncode != 0


def test_names_lead_to_the_pods(documents, muster_program):
    stateful, job = documents["StatefulSet", "digits-ps"], documents["Job", "digits-worker"]
    assert stateful["spec"]["serviceName"] == "digits-ps"
    assert job["spec"]["template"]["spec"]["subdomain"] == "digits-worker"
    counts = {"ps": stateful["spec"]["replicas"], "worker": job["spec"]["completions"]}
    expected = {name: ["digits-%s-%d.digits-%s:2222" % (name, i, name) for i in range(count)]
                for name, count in counts.items()}
    for document in (stateful, job):
        name = document["metadata"]["labels"]["job"]
        for index in range(counts[name]):
            words = document["spec"]["template"]["spec"]["containers"][0]["args"]
            done = subprocess.run([muster_program, words[0], "--dry-run", *words[1:]], capture_output=True, text=True,
                                  env=dict(os.environ, JOB_COMPLETION_INDEX=str(index)))
            assert done.returncode == 0, done.stderr
            config = json.loads(done.stdout.splitlines()[1].partition("TF_CONFIG=")[2])
            assert config == {"cluster": expected, "task": {"type": name, "index": index}}


def test_services_select_the_pods(documents):
    for (kind, name), document in documents.items():
        if kind == "Service":
            other = documents.get(("StatefulSet", name)) or documents["Job", name]
            labels = other["spec"]["template"]["metadata"]["labels"]
            assert document["spec"]["selector"].items() <= labels.items()
            assert document["spec"]["clusterIP"] == "None"


def test_probes_and_prometheus_find_the_port_of_metrics(documents):
    for key in (("StatefulSet", "digits-ps"), ("Job", "digits-worker")):
        template = documents[key]["spec"]["template"]
        container = template["spec"]["containers"][0]
        port = {entry["name"]: entry["containerPort"] for entry in container["ports"]}["metrics"]
        assert {"name": "MUSTER_METRICS_PORT", "value": str(port)} in container["env"]
        probes = [container[name] for name in container if name.endswith("Probe")]
        assert len(probes) >= 2
        assert all(probe["httpGet"] == {"path": "/healthz", "port": "metrics"} for probe in probes)
        assert template["metadata"]["annotations"]["prometheus.io/port"] == str(port)


def test_the_dockerfile_passes_the_linter(root, deploy_python):
    linter = os.path.join(os.path.dirname(deploy_python), "hadolint")
    done = run([linter, os.path.join(root, "deploy", "Dockerfile")])
    assert done.returncode == 0, done.stdout + done.stderr


def stages(root):
    """The Debian packages that each stage of the Dockerfile installs, by the release of its image."""
    found = []
    for line in (root / "deploy" / "Dockerfile").read_text().replace("\\\n", " ").splitlines():
        if line.startswith("FROM "):
            found.append((re.search(r"debian:(\w+)", line)[1], []))
        installed = re.search(r"apt-get install -y --no-install-recommends ([^&]*)", line)
        if installed:
            found[-1][1].extend(installed[1].split())
    return found


@pytest.fixture(scope="module")
def debian_release():
    """The name of the Debian that this is, which apt-cache knows the packages of."""
    if not (shutil.which("apt-cache") and shutil.which("dpkg")):
        pytest.skip("the packages of the Dockerfile can only be looked up on a Debian system")
    with open("/etc/os-release") as file:
        return re.search(r"^VERSION_CODENAME=(.*)$", file.read(), re.M)[1]


def test_debian_has_the_packages_of_the_dockerfile(root, debian_release):
    for release, packages in stages(root):
        if release != debian_release:
            pytest.skip("this is Debian %s: the packages of %s cannot be looked up" % (debian_release, release))
        assert len(packages) > 5
        policies = run(["apt-cache", "policy", *packages]).stdout
        candidates = dict(re.findall(r"^(\S+):\n.*\n  Candidate: (.*)$", policies, re.M))
        absent = [name for name in packages if candidates.get(name, "(none)") == "(none)"]
        assert not absent, "Debian %s has no package %s" % (release, ", ".join(absent))


def test_the_image_has_the_libraries_that_muster_loads(root, debian_release, muster_program):
    """Those it is linked with and oneDNN, which it loads by its name."""
    library = os.path.join(os.path.dirname(muster_program), "..", "lib", "libmuster.so")
    wanted = set(re.findall(r"NEEDED\s+(\S+)", run(["objdump", "-p", library, muster_program]).stdout))
    assert len(wanted) > 5
    wanted.discard("libmuster.so")
    with open("/usr/include/oneapi/dnnl/dnnl_version.h") as file:
        wanted.add("libdnnl.so." + re.search(r"DNNL_VERSION_MAJOR (\d+)", file.read())[1])
    packages = stages(root)[-1][1]
    closure = set(re.findall(r"^(\w\S*)", run(["apt-cache", "depends", "--recurse", "--no-recommends", "--no-suggests",
                                               "--no-conflicts", "--no-breaks", "--no-replaces", "--no-enhances",
                                               *packages]).stdout, re.M))
    owners = re.findall(r"^([^:\s]+):\S* \S*/(\S+)$", run(["dpkg", "-S", *("*/" + name for name in wanted)]).stdout, re.M)
    for name in sorted(wanted):
        found = {package for package, file in owners if file == name}
        assert found & closure, "%s is of %s, which the image does not have" % (name, found or "no package")


def test_the_build_of_the_image_gets_what_it_needs_and_little_else(root):
    lines = (root / ".dockerignore").read_text().splitlines()
    patterns = [line for line in lines if line and not line.startswith("#")]

    def is_ignored(path):
        parts = path.split("/")
        heads = ["/".join(parts[:i + 1]) for i in range(len(parts))]
        return any(fnmatch.fnmatch(head, pattern) or (pattern.startswith("**/") and fnmatch.fnmatch(head, pattern[3:]))
                   for head in heads for pattern in patterns)

    for path in (".git/HEAD", ".venv/bin/python", ".venv-tf/bin/python", "build/release/lib/libmuster.so",
                 "tests/golden/README.md", "python/muster/__pycache__/x.pyc"):
        assert is_ignored(path), path
    tracked = run(["git", "-C", str(root), "ls-files"]).stdout.split()
    needed = [path for path in tracked
              if path.startswith(("muster/", "python/muster/", "python/bindings/", "cmake/", "examples/", "data/digits/"))
              or path in ("CMakeLists.txt", "python/CMakeLists.txt", "python/op_functions.txt", "tools/gen_python_ops.py",
                      "tools/gen_python_stubs.py", "pyproject.toml", "README.md")]
    assert len(needed) > 1000
    assert not [path for path in needed if is_ignored(path)]
