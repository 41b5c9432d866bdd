"""The manifests against the schemas of Kubernetes, and their commands as `muster launch` reads them; the Dockerfile
through a linter. Nothing is deployed and no image is built: neither an engine nor a cluster is here."""
import json
import os
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
