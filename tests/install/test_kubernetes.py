# SPDX-License-Identifier: Apache-2.0
"""packaging/k8s: its Jobs fit the schemas of Kubernetes (kubernetes-validate of PyPI has them), all
else fits those of JobSet and of Kubeflow Trainer (CTRUN_TEST_CRDS names a folder with their
published CustomResourceDefinitions). Pods are processes here, with the environment that these two
give a container, and the command of the file."""
import collections
import copy
import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import ctrun
import pypi
import pytest

sys.path.insert(0, str(ctrun.ROOT / "tests" / "cli"))
import launch  # noqa: E402

yaml = pytest.importorskip("yaml", reason="no python3-yaml here")
OBJECTS = {path.name: list(yaml.safe_load_all(path.read_text())) for path in
           sorted((ctrun.ROOT / "packaging/k8s").glob("*.yaml"))}
FILES = {name: objects[-1] for name, objects in OBJECTS.items()}  # the ones before it are services
POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
SAYS = '#!/bin/sh\necho "said $RANK $WORLD_SIZE $GROUP_RANK $MASTER_ADDR"\n'


def job(name):
    """The one Job of the file."""
    spec = FILES[name]["spec"]
    if FILES[name]["kind"] == "Job":
        return spec
    replicated, = spec.get("replicatedJobs") or spec["template"]["spec"]["replicatedJobs"]
    return replicated["template"]["spec"]


def container(name):
    found, = job(name)["template"]["spec"]["containers"]
    return found


def codes(name, action):
    return {code for rule in job(name)["podFailurePolicy"]["rules"] if rule["action"] == action
            for code in rule.get("onExitCodes", {}).get("values", [])}


# ---- The schemas ---------------------------------------------------------------------------


def closed(schema):
    """The schema, which allows no other names; Kubernetes ignores those silently."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: closed(value) for key, value in schema.items()}
    if "properties" in made and made.get("type") == "object" and \
            not made.get("x-kubernetes-preserve-unknown-fields"):
        made.setdefault("additionalProperties", False)
    return made


def definitions():
    """{(apiVersion, kind): schema} of the folder."""
    folder = os.environ.get("CTRUN_TEST_CRDS")
    if not folder:
        pytest.skip("CTRUN_TEST_CRDS names no folder with the CustomResourceDefinitions of JobSet and Trainer")
    found = {}
    for path in pathlib.Path(folder).glob("*.yaml"):
        for each in yaml.safe_load_all(path.read_text()):
            for version in each["spec"]["versions"]:
                schema = closed(version["schema"]["openAPIV3Schema"])
                schema["properties"]["metadata"] = {"type": "object"}  # every object has it
                key = f"{each['spec']['group']}/{version['name']}", each["spec"]["names"]["kind"]
                found[key] = schema
    jobs = found["jobset.x-k8s.io/v1alpha2", "JobSet"]["properties"]["spec"]["properties"]["replicatedJobs"]
    found["batch/v1", "Job"] = {"properties": {"spec": jobs["items"]["properties"]["template"]["properties"]["spec"]}}
    return found


@pytest.mark.parametrize("name", FILES)
def test_the_published_schema_takes_the_file(name):
    jsonschema = pytest.importorskip("jsonschema")
    schema = definitions()[FILES[name]["apiVersion"], FILES[name]["kind"]]
    validator = jsonschema.Draft4Validator(schema)
    assert [str(error.message) for error in validator.iter_errors(FILES[name])] == []
    wrong = yaml.safe_load(yaml.safe_dump(FILES[name]))
    wrong["spec"]["nonsense"] = 1
    assert list(validator.iter_errors(wrong)), "the schema takes anything"


# Reads objects, prints for each what is wrong with it by 1.29 (older ones want each rule to have both conditions and
# codes) and by the last version that it has schemas of.
VALIDATE = """if True:
    import json, sys
    import kubernetes_validate
    def faults(each):
        for version in ("1.29", kubernetes_validate.utils.latest_version()):
            try:
                kubernetes_validate.validate(each, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                yield f"{version}: {error.message}"
    print(json.dumps([list(faults(each)) for each in json.load(sys.stdin)]))
"""


def faults(objects):
    run = subprocess.run([pypi.python_with("kubernetes-validate"), "-c", VALIDATE], input=json.dumps(objects),
                         capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_kubernetes_takes_the_jobs_and_services_and_would_not_take_nonsense():
    """The Jobs that a JobSet and a ClusterTrainingRuntime make are checked, too. Trainer's plug-in
    adds what the latter's lacks; the API server adds the labels of the selector and of the
    template."""
    objects = [each for found in OBJECTS.values() for each in found if each["apiVersion"] in ("v1", "batch/v1")]
    objects += [{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name.partition(".")[0]}, "spec": job(name)}
                for name in FILES if FILES[name]["kind"] != "Job"]
    assert [each["kind"] for each in objects] == ["Service", "Job", "Job", "Job"]
    assert faults(objects) == [[]] * len(objects)
    wrong = copy.deepcopy(objects)
    for each in wrong:
        each["spec"]["nonsense"] = 1
    assert all(len(found) == 2 for found in faults(wrong)), "it takes anything"


# ---- Exit codes ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_the_policy_names_codes_that_the_manual_has_and_the_container_that_is_there(name):
    page = (ctrun.ROOT / "man/ctrun.1").read_text()
    told = page[page.index(".Sh EXIT STATUS"):page.index(".Sh DIAGNOSTICS")]
    listed = {int(code) for line in re.findall(r"^\.It ([\d , ]+)$", told, re.M)
              for code in re.findall(r"\d+", line)}
    assert codes(name, "FailJob") | codes(name, "Count") <= listed
    assert codes(name, "Count") == {75}
    for rule in job(name)["podFailurePolicy"]["rules"]:
        if "onExitCodes" in rule:
            assert rule["onExitCodes"]["containerName"] == container(name)["name"]
    assert job(name)["template"]["spec"]["restartPolicy"] == "Never", "what podFailurePolicy demands"


@pytest.mark.parametrize("words, is_final", [
    (["--no-such-option", "true"], True),
    (["--standalone", "no-such-program"], True),
    (["--standalone", "/etc/passwd"], True),
    (["--nnodes=2", "--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-conf=join_timeout=1", "true"], False)])
@pytest.mark.parametrize("name", FILES)
def test_a_failure_that_cannot_go_away_fails_the_job_and_another_does_not(box, name, words, is_final):
    run = box.ctrun("--no-python", *(word.format(port=launch.free_port()) for word in words))
    assert run.code != 0 and (run.code in codes(name, "FailJob")) == is_final, run


# ---- Pods, played --------------------------------------------------------------------------


def says(runs):
    return sorted(line for run in runs for line in re.findall(r"said (.*)", run.out))


def test_pods_of_a_trainjob_meet_with_what_the_plug_in_sets(box):
    """As Trainer's plug-in torch does for numNodes: 2, numProcPerNode: 2; pod 0 is this machine."""
    port = str(launch.free_port())
    command = container("clustertrainingruntime.yaml")["command"]
    assert command == ["ctrun"]
    script = box.write("train.sh", SAYS, 0o755)
    pods = [box.start(*command, script, env={
        **POD, "JOB_COMPLETION_INDEX": str(index), "HOSTNAME": f"job-node-0-{index}", "PET_NNODES": "2",
        "PET_NPROC_PER_NODE": "2", "PET_NODE_RANK": str(index), "PET_MASTER_ADDR": "127.0.0.1",
        "PET_MASTER_PORT": port}) for index in range(2)]
    assert [pod.wait() for pod in pods] == [0, 0], pods
    assert says(pods) == [f"{rank} 4 {rank // 2} 127.0.0.1" for rank in range(4)], pods


@pytest.fixture
def start_pod(box):
    """start_pod(HOSTS, WORDS, ENV) runs a pod's command with that text as its /etc/hosts, in one
    network for all pods of the test: port 29400 of this machine may be taken."""
    ctrun.needs_mounts()
    if os.geteuid():
        pytest.skip("a hosts file for the pods needs root")
    network = box.start("unshare", "-n", "sh", "-c", "ip link set lo up && touch network && exec sleep 600")
    ctrun.wait_until(box.path("network").exists, lambda: f"a network\n{network}")

    def start(hosts, words, env):
        inside = f"mount --bind {hosts} /etc/hosts && exec \"$@\""
        return box.start("nsenter", f"--net=/proc/{network.pid}/ns/net", "unshare", "-m", "sh", "-c", inside, "-", *words,
                         env={**POD, **env})

    yield start
    network.signal(signal.SIGTERM)
    network.wait()


def test_pods_of_a_jobset_find_pod_0_by_their_own_name(box, start_pod):
    """A pod's /etc/hosts has its own name; that of pod 0 comes from DNS, here from the same file."""
    script = box.write("train.sh", SAYS, 0o755)
    command = [word.replace("=8", "=2") for word in container("jobset.yaml")["command"]]
    assert command[0] == "ctrun" and command[-1] == "train.py" and "--nproc-per-node=2" in command
    assert job("jobset.yaml")["completions"] == 2 and "--nnodes=2" in command
    pods = []
    for index in range(2):
        hosts = box.write(f"hosts{index}", f"127.0.0.1 localhost train-node-0-{1 - index}.train\n"
                          f"127.0.0.1 train-node-0-{index}.train train-node-0-{index}\n")
        pods.append(start_pod(hosts, [*command[:-1], script], {
            "JOB_COMPLETION_INDEX": str(index), "HOSTNAME": f"train-node-0-{index}"}))
    assert [pod.wait() for pod in pods] == [0, 0], pods
    assert [line.split()[:3] for line in says(pods)] == [[str(r), "4", str(r // 2)] for r in range(4)], pods


FOREVER = "#!/bin/sh\nexec sleep 600\n"


@pytest.fixture
def pods(box, start_pod):
    """add(INDEX) runs a pod of elastic.yaml: its init container, then its command, in the same
    volume."""
    spec = job("elastic.yaml")["template"]["spec"]
    init, = spec["initContainers"]
    main = container("elastic.yaml")
    volume, = [each for each in main["volumeMounts"] if each in init["volumeMounts"]]
    script = box.write("train.sh", FOREVER, 0o755)
    names = [f"train-{index}" for index in range(4)]
    service = spec["subdomain"]

    class Pods:
        live = {}

        def add(self, index):
            inside = box.path(f"volume{index}")
            words = [word.replace(volume["mountPath"], str(inside)) for word in init["command"]]
            assert words[0] == "/ctrunctl"  # those of this build may be dynamic: --shared
            made = box.run(ctrun.program("ctrunctl"), words[1], "--shared", *words[2:])
            assert made.code == 0, made
            hosts = box.write(f"hosts{index}", "127.0.0.1 localhost " + " ".join(
                f"{name}.{service}.default.svc.cluster.local" for name in names) + f" {names[index]}\n")
            words = [word.replace(volume["mountPath"], str(inside)).replace("=8", "=1")
                     .replace("last_call_timeout=5", "last_call_timeout=1") for word in main["command"]]
            self.live[index] = start_pod(hosts, [*words[:-1], script], {
                "JOB_COMPLETION_INDEX": str(index), "HOSTNAME": names[index]})
            return self

        def delete(self, index, signum):
            pod = self.live.pop(index)
            os.kill(pod.pid, signum)
            return pod.wait(30)

        def meet(self, size, after=0):
            """Waits for a world of so many pods that is newer than the generation `after`; returns
            its generation. Before it there may be a world without a pod that was late for the last
            call."""
            def whole():
                started = collections.Counter(event["generation"] for event in
                                              box.events("round_started", group_world_size=size))
                return max((each for each, count in started.items() if each > after and count == size), default=0)
            return ctrun.wait_until(whole, lambda: f"a world of {size} after {after}: {box.events()}", 60)

    made = Pods()
    made.live = {}
    yield made
    for index in list(made.live):
        made.delete(index, signal.SIGTERM)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_a_pod_is_deleted_and_the_others_go_on_and_its_successor_joins(box, pods, signum):
    """SIGTERM as the kubelet deletes it; SIGKILL when that takes too long."""
    assert main_words("elastic.yaml")["--nnodes"] == "2:8"
    for index in range(3):
        pods.add(index)
    three = pods.meet(3)
    assert pods.delete(2, signum) != 0
    two = pods.meet(2, after=three)
    pods.add(2)
    pods.meet(3, after=two)


def test_a_job_that_is_scaled_grows(box, pods):
    for index in range(job("elastic.yaml")["completions"]):
        pods.add(index)
    two = pods.meet(2)
    pods.add(2).add(3)
    pods.meet(4, after=two)


def main_words(name):
    return dict(word.partition("=")[::2] for word in container(name)["command"] if word.startswith("--"))
