"""Job files, offline: by schema, and by what a schema cannot see.

Those in configs/jobs, which are what `seedrl launch` writes, and others with all of its options.
Each check is also shown a file with a typing error in it, which it must refuse.
"""

import copy
import json
import re
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest

from learner.hosts import jax_processes, waiting
from seedrl.exit_codes import ExitCode
from tests.architecture.documents import JOBS, job_file
from tests.configs.job_files import (
    JOBSETS,
    ROOT,
    Document,
    documents,
    kind,
    of_engine,
    replicated_jobs,
    text_of,
)

KUBERNETES = "1.37"


def test_the_files_are_what_seedrl_launch_writes() -> None:
    folder = ROOT / "configs" / "jobs"
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        name: job_file(name) for name in JOBS
    }, "make docs writes them"


def validate_kubernetes(documents: list[Document]) -> None:
    """Raises ValidationError unless every document, and every Job of a JobSet, fits its schema."""
    schema = json.loads((Path(__file__).parent / "jobset.schema.json").read_text())
    for document in documents:
        if document["kind"] != "JobSet":
            kubernetes_validate.validate(document, KUBERNETES, strict=True)
            continue
        jsonschema.validate(document, schema, cls=jsonschema.Draft202012Validator)
        for job in document["spec"]["replicatedJobs"]:
            as_job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job["name"]}}
            kubernetes_validate.validate(as_job | job["template"], KUBERNETES, strict=True)


@pytest.mark.parametrize("name", JOBSETS)
def test_jobsets_fit_their_schemas(name: str) -> None:
    validate_kubernetes(documents(name))


def misspell_pod_field(files: list[Document]) -> None:
    pod = replicated_jobs(files)["learner"]["template"]["spec"]
    pod["terminationGracePeriodSecond"] = pod.pop("terminationGracePeriodSeconds")


def misspell_container_field(files: list[Document]) -> None:
    container = replicated_jobs(files)["envs"]["template"]["spec"]["containers"][0]
    container["arg"] = container.pop("args")


def misspell_jobset_field(files: list[Document]) -> None:
    spec = kind(files, "JobSet")["spec"]
    spec["sucessPolicy"] = spec.pop("successPolicy")


def misspell_operator(files: list[Document]) -> None:
    kind(files, "JobSet")["spec"]["successPolicy"]["operator"] = "Every"


def give_a_number_as_text(files: list[Document]) -> None:
    replicated_jobs(files)["learner"]["backoffLimit"] = "six"


def misspell_policy_type(files: list[Document]) -> None:
    policy = kind(files, "NetworkPolicy")["spec"]
    policy["ingres"] = policy.pop("ingress")


def misspell_claim_field(files: list[Document]) -> None:
    claim = kind(files, "PersistentVolumeClaim")["spec"]
    claim["resource"] = claim.pop("resources")


@pytest.mark.parametrize(
    "spoil",
    [
        misspell_pod_field,
        misspell_container_field,
        misspell_jobset_field,
        misspell_operator,
        give_a_number_as_text,
        misspell_policy_type,
        misspell_claim_field,
    ],
)
def test_a_typing_error_in_a_jobset_is_found(spoil: Callable[[list[Document]], None]) -> None:
    files = documents("jobset-gpu.yaml")
    spoil(files)
    with pytest.raises((jsonschema.ValidationError, kubernetes_validate.ValidationError)):
        validate_kubernetes(files)


@pytest.mark.parametrize("name", JOBSETS)
def test_names_within_a_jobset_refer_to_something(name: str) -> None:
    files = documents(name)
    spec, jobs = kind(files, "JobSet")["spec"], replicated_jobs(files)
    own_name = kind(files, "JobSet")["metadata"]["name"]
    assert spec["network"]["subdomain"] == own_name
    assert certified(name) == [
        f"{own_name}-learner-0-{index}.{own_name}"
        for index in range(jobs["learner"]["completions"])
    ]
    assert spec["coordinator"]["replicatedJob"] == "learner"
    assert spec["successPolicy"]["targetReplicatedJobs"] == ["learner"]
    is_alone = jobs["learner"]["completions"] == 1
    of_env_servers = ["envs"] if is_alone else ["envs", "envs-of-others"]
    assert list(jobs) == ["learner", *of_env_servers]

    policy = kind(files, "NetworkPolicy")["spec"]
    rule, *between_hosts = policy["ingress"]
    key = "jobset.sigs.k8s.io/"

    def pods(job: str) -> Document:
        labels = {f"{key}jobset-name": own_name, f"{key}replicatedjob-name": job}
        return {"podSelector": {"matchLabels": labels}}

    assert policy["podSelector"] == pods("learner")["podSelector"]
    assert rule["from"] == [pods(job) for job in of_env_servers]
    assert between_hosts == ([] if is_alone else [{"from": [pods("learner")]}])
    pod = jobs["learner"]["template"]["spec"]
    ports = {port["name"]: port["containerPort"] for port in pod["containers"][0]["ports"]}
    # Nobody but the kubelet asks for health.
    assert [port["port"] for port in rule["ports"]] == [ports["serving"]]
    words = " ".join(pod["containers"][0]["args"]).split()
    assert f"--serving.bind=0.0.0.0:{ports['serving']}" in words
    assert f"--logging.health-bind=0.0.0.0:{ports['health']}" in words
    probes = {key: value for key, value in pod["containers"][0].items() if key.endswith("Probe")}
    assert list(probes) == ["readinessProbe", *["startupProbe"] * (not is_alone), "livenessProbe"]
    for probe in probes.values():
        assert probe["httpGet"] == {"path": "/healthz", "port": "health"}
    claim = kind(files, "PersistentVolumeClaim")
    assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce" if is_alone else "ReadWriteMany"]


@pytest.mark.parametrize("name", JOBSETS)
def test_each_side_of_a_jobset_has_its_own_secrets_by_the_names_of_the_comment(name: str) -> None:
    for job in replicated_jobs(documents(name)).values():
        pod = job["template"]["spec"]
        (container,) = pod["containers"]
        mounts = container["volumeMounts"]
        assert [mount["name"] for mount in mounts] == [volume["name"] for volume in pod["volumes"]]
        secret = pod["volumes"][-1]["secret"]["secretName"]
        text = text_of(name).replace("\\\n#", "")
        (command,) = re.findall(rf"create secret generic {secret} (.*)", text)
        files_of_secret = set(re.findall(r"--from-file=(\S+)", command))
        assert mounts[-1]["mountPath"] == "/secrets"
        used = set(re.findall(r"=/secrets/(\S+)", " ".join(container["args"])))
        assert used == files_of_secret


def seconds_to_kill(container: Document) -> float:
    """From a container's start until the kubelet ends it at the earliest, if nobody answers."""
    probe = container.get("startupProbe") or container["livenessProbe"]
    return (probe["failureThreshold"] - 1) * probe["periodSeconds"]


@pytest.mark.parametrize("name", JOBSETS)
def test_hosts_may_meet_for_as_long_as_they_wait_for_each_other(name: str) -> None:
    job = replicated_jobs(documents(name))["learner"]
    (container,) = job["template"]["spec"]["containers"]
    own = seconds_to_kill({"livenessProbe": container["livenessProbe"]})
    # A host alone begins at once; all others have as long as that after they have met.
    meeting = waiting.MEETING_SECONDS + jax_processes._JOIN_SECONDS
    assert own == 590
    assert seconds_to_kill(container) == own + (meeting if job["completions"] > 1 else 0)


def certified(name: str) -> list[str]:
    """The hosts that the file's command makes certificates for."""
    (words,) = re.findall(r"^# +(seedrl certificates .*)$", text_of(name), re.MULTILINE)
    script = f"printf '%s\\n' {words}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60)
    named = done.stdout.replace("--host\n", "--host=")
    return re.findall(r"^--host=(.*)$", named, re.MULTILINE)


# How each ends where the same again would end the same way.
FINAL_CODES = {
    "learner": [
        ExitCode.TARGET_MISSED,
        ExitCode.USAGE,
        ExitCode.NOT_FINITE,
        ExitCode.UNREADABLE_CHECKPOINT,
    ],
    "envs": [ExitCode.USAGE],
}


@pytest.mark.parametrize(
    ("name", "role"),
    [(name, role) for name in JOBSETS for role in replicated_jobs(documents(name))],
)
def test_restarts_follow_the_exit_codes(name: str, role: str) -> None:
    job = replicated_jobs(documents(name))[role]
    pod = job["template"]["spec"]
    (container,) = pod["containers"]
    bad_config, disruption = job["podFailurePolicy"]["rules"]
    assert bad_config == {
        "action": "FailJob",
        "onExitCodes": {
            "containerName": container["name"],
            "operator": "In",
            "values": FINAL_CODES[role.removesuffix("-of-others")],
        },
    }
    assert disruption["action"] == "Ignore"
    # Kubernetes admits a podFailurePolicy only with these two.
    assert pod["restartPolicy"] == "Never"
    assert job["podReplacementPolicy"] == "Failed"
    assert pod["securityContext"]["runAsNonRoot"] is True


@cache
def compose_validator() -> Any:
    # Slow to import, and not only for who validates: pytest imports all that it collects.
    from check_jsonschema.builtin_schemas import get_builtin_schema

    schema = get_builtin_schema("vendor.compose-spec")
    return jsonschema.validators.validator_for(schema)(schema)


def validate_compose(compose: Document) -> None:
    compose_validator().validate(compose)


@pytest.mark.parametrize("name", of_engine("compose"))
def test_compose_fits_its_schema(name: str) -> None:
    (compose,) = documents(name)
    validate_compose(compose)


@pytest.mark.parametrize("field", ["entrypoint", "restart", "stop_grace_period"])
def test_a_typing_error_in_compose_is_found(field: str) -> None:
    (compose,) = documents("compose.yaml")
    spoilt = copy.deepcopy(compose)
    spoilt["services"]["learner"][field[:-1]] = spoilt["services"]["learner"].pop(field)
    with pytest.raises(jsonschema.ValidationError):
        validate_compose(spoilt)


@pytest.mark.parametrize("name", of_engine("compose"))
def test_compose_shares_the_socket(name: str) -> None:
    (compose,) = documents(name)
    services = compose["services"]
    learners = [name for name in services if name.startswith("learner")]
    for service_name, service in services.items():
        assert "sockets:/sockets" in service["volumes"]
        assert {volume.split(":")[0] for volume in service["volumes"]} <= set(compose["volumes"])
        learns = service_name in learners
        assert ("checkpoints:/checkpoints" in service["volumes"]) == learns
        # Learners meet in a network that leads nowhere; all others have none.
        assert ("networks" in service) == (learns and len(learners) > 1)
        assert ("network_mode" in service) != ("networks" in service)
    if len(learners) > 1:
        assert compose["networks"] == {"learners": {"internal": True}}
        assert {name for each in learners for name in services[each]["networks"]} == {"learners"}


@pytest.mark.parametrize("name", of_engine("compose"))
def test_learners_of_compose_have_their_own_gpus(name: str) -> None:
    (compose,) = documents(name)
    found = [
        device
        for service in compose["services"].values()
        for device in service.get("deploy", {}).get("resources", {})
        and service["deploy"]["resources"]["reservations"]["devices"]
    ]
    asked = re.search(r"gpu:(\d)", text_of(name))
    hosts = int(re.search(r"--hosts (\d)|$", text_of(name))[1] or 1)
    number = int(asked[1]) if asked else 0
    if hosts == 1:
        assert [device["count"] for device in found] == [number] * bool(number)
        return
    ids = [each for device in found for each in device["device_ids"]]
    assert ids == [str(each) for each in range(hosts * number)]


@pytest.mark.parametrize("name", [*JOBSETS, *of_engine("compose")])
def test_images_are_those_that_the_file_says_how_to_build(name: str) -> None:
    built = re.findall(
        r"docker build -f (\S+) -t (\S+)(?: --build-arg EXTRA=(\S+))? \.", text_of(name)
    )
    used = re.findall(r"^ +image: (\S+)$", text_of(name), re.MULTILINE)
    assert [image for _, image, _ in built] == list(dict.fromkeys(used))
    extras = (ROOT / "pyproject.toml").read_text()
    for file, image, extra in built:
        assert (ROOT / file).is_file()
        assert image.endswith(extra) and (not extra or f"\n{extra} = [" in extras)


def validate_sky(files: list[Document]) -> None:
    """Raises ValidationError unless header and tasks fit, as far as the files here go."""
    schema = json.loads((Path(__file__).parent / "sky.schema.json").read_text())
    jsonschema.validate(files, schema, cls=jsonschema.Draft202012Validator)


@pytest.mark.parametrize("name", of_engine("sky"))
def test_sky_fits_its_schema_and_its_names_refer_to_something(name: str) -> None:
    files = documents(name)
    validate_sky(files)
    header, *tasks = files
    assert [task["name"] for task in tasks] == ["learner", "envs"]
    # The script of env servers starts them again itself.
    recovery = [task["resources"].get("job_recovery") for task in tasks]
    assert recovery == [{"max_restarts_on_errors": 6}, None]
    assert header["primary_tasks"] == ["learner"]
    assert f"seedrl certificates ~/{header['name']}-certificates " in text_of(name)
    hosts = tasks[0].get("num_nodes", 1)
    assert certified(name) == [f"learner-{index}.{header['name']}" for index in range(hosts)]
    volume = tasks[0]["volumes"]["/checkpoints"]
    assert f"sky volumes apply --name {volume} " in text_of(name) or (
        hosts > 1 and f"'name: {volume}'" in text_of(name)
    )
    for task in tasks:
        files_used = set(re.findall(r"\$HOME/(secrets/[\w.]+)", task["run"]))
        assert {f"~/{file}" for file in files_used} == set(task["file_mounts"])
        for place, source in task["file_mounts"].items():
            folder = f"~/{header['name']}-certificates"
            assert source == place.replace("~/secrets", folder)
        for script in (task["setup"], task["run"]):
            subprocess.run(["bash", "-n", "-c", script], check=True, timeout=60)


def test_a_typing_error_in_what_sky_starts_again_is_found() -> None:
    files = documents("sky.yaml")
    recovery = files[1]["resources"]["job_recovery"]
    recovery["max_restarts_on_error"] = recovery.pop("max_restarts_on_errors")
    with pytest.raises(jsonschema.ValidationError):
        validate_sky(files)


@pytest.mark.parametrize("field", ["resources", "num_nodes", "file_mounts"])
def test_a_typing_error_in_sky_is_found(field: str) -> None:
    files = documents("sky.yaml")
    files[-1][field[:-1]] = files[-1].pop(field)
    with pytest.raises(jsonschema.ValidationError):
        validate_sky(files)


# Options of sbatch that the file may use, each with the form of its value.
DIRECTIVES = {
    "cpus-per-task": r"\d+",
    "gpus-per-node": r"\d+",
    "job-name": r"\w+",
    "mem": r"\d+G",
    "nodes": r"\d+",
    "ntasks": r"\d+",
    "ntasks-per-node": r"\d+",
    "open-mode": r"append|truncate",
    "partition": r"[\w.,-]+",
    "requeue": r"",
    "signal": r"TERM@\d+",
    "time": r"\d+:\d\d:\d\d",
}


def wrong_directives(script: str) -> list[str]:
    """The `#SBATCH` lines that are misspelt, misplaced or mix the two ways to ask for memory.

    And what stands before the commands and is no comment: sbatch reads no directive after it.
    """
    head, _, rest = script.partition("\nset -euo pipefail\n")
    wrong = [line for line in rest.splitlines() if line.startswith("#SBATCH")]
    wrong += [line for line in head.splitlines() if line.strip() and not line.startswith("#")]
    for line in re.findall(r"^#\s*SBATCH.*$", head, re.MULTILINE):
        match = re.fullmatch(r"#SBATCH --([a-z-]+)(?:=(\S+))?", line)
        if line == "#SBATCH hetjob":
            continue
        form = DIRECTIVES.get(match[1]) if match else None
        if match is None or form is None or not re.fullmatch(form, match[2] or ""):
            wrong.append(line)
    return wrong


@pytest.mark.parametrize("name", of_engine("slurm"))
def test_slurm_directives_are_known(name: str) -> None:
    script = text_of(name)
    assert wrong_directives(script) == []
    assert script.count("#SBATCH hetjob\n") == 1, "one learner component and one of env servers"


@pytest.mark.parametrize(
    "line",
    [
        "#SBATCH --cpu-per-task=8",
        "#SBATCH --mem-per-cpu=2G",
        "# SBATCH --time=24:00:00",
        "#SBATCH --time=1day",
        "#SBATCH het-job",
        "of what was meant for a comment",
    ],
)
def test_a_typing_error_in_a_slurm_directive_is_found(line: str) -> None:
    assert wrong_directives(f"#!/usr/bin/env bash\n{line}\n\nset -euo pipefail\n") == [line]


@pytest.mark.parametrize("name", of_engine("slurm"))
def test_slurm_script_is_valid_shell(name: str) -> None:
    script = text_of(name)
    subprocess.run(["bash", "-n", "-c", script], check=True, timeout=60)
    # Nodes of the learner, of which each has one task.
    hosts, tasks = re.search(r"--nodes=(\d+)\n#SBATCH --ntasks=(\d+)\n", script).groups()
    assert hosts == tasks == (re.search(r"--hosts (\d)|$", script)[1] or "1")
    # What a step gets is what its component has asked for.
    (learner_step, env_server_step) = sorted(
        re.findall(r"srun --het-group=(\d) --cpus-per-task=(\d+)", script)
    )
    asked = re.findall(r"^#SBATCH --cpus-per-task=(\d+)", script, re.MULTILINE)
    assert [learner_step, env_server_step] == list(zip("01", asked, strict=True))
