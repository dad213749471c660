"""The job files, offline: by schema, by what a schema cannot see, and by the flags of the commands.

Each check is also shown a file with a typing error in it, which it must refuse.
"""

import copy
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from seedrl import config_file

ROOT = Path(__file__).parents[2]
JOBS = ROOT / "configs" / "jobs"
JOBSETS = ("jobset-tpu.yaml", "jobset-gpu.yaml")
ALL = (*JOBSETS, "compose.yaml", "slurm.sbatch")
COMMANDS = {"seedrl-learner": "learner", "seedrl-env-server": "envs_server"}
KUBERNETES = "1.37"

Document = dict[str, Any]


def documents(name: str) -> list[Document]:
    return list(yaml.safe_load_all((JOBS / name).read_text()))


def kind(documents: list[Document], wanted: str) -> Document:
    (found,) = [document for document in documents if document["kind"] == wanted]
    return found


def replicated_jobs(documents: list[Document]) -> dict[str, Document]:
    jobs = kind(documents, "JobSet")["spec"]["replicatedJobs"]
    return {job["name"]: job["template"]["spec"] for job in jobs}


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
    assert spec["coordinator"]["replicatedJob"] == "learner"
    assert spec["successPolicy"]["targetReplicatedJobs"] == ["learner"]
    assert set(jobs) == {"learner", "envs"}

    policy = kind(files, "NetworkPolicy")["spec"]
    (rule,) = policy["ingress"]
    selected = [policy["podSelector"], *(peer["podSelector"] for peer in rule["from"])]
    key = "jobset.sigs.k8s.io/"
    assert [entry["matchLabels"] for entry in selected] == [
        {f"{key}jobset-name": "seedrl", f"{key}replicatedjob-name": "learner"},
        {f"{key}jobset-name": "seedrl", f"{key}replicatedjob-name": "envs"},
    ]
    pod = jobs["learner"]["template"]["spec"]
    assert [port["port"] for port in rule["ports"]] == [
        port["containerPort"] for port in pod["containers"][0]["ports"]
    ]
    claim = kind(files, "PersistentVolumeClaim")["metadata"]["name"]
    assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == claim
    for job in jobs.values():
        pod = job["template"]["spec"]
        (container,) = pod["containers"]
        mounts = container["volumeMounts"]
        assert [mount["name"] for mount in mounts] == [volume["name"] for volume in pod["volumes"]]
        # Each side has its own secrets, and reads them by the names that the comment gives them.
        secret = pod["volumes"][-1]["secret"]["secretName"]
        text = (JOBS / name).read_text().replace("\\\n#", "")
        (command,) = re.findall(rf"create secret generic {secret} (.*)", text)
        files_of_secret = set(re.findall(r"--from-file=(\S+)", command))
        assert mounts[-1]["mountPath"] == "/secrets"
        used = {word[9:] for word in container["args"] if word.startswith("/secrets/")}
        assert used == files_of_secret


@pytest.mark.parametrize("name", JOBSETS)
@pytest.mark.parametrize("role", ["learner", "envs"])
def test_restarts_follow_the_exit_codes(name: str, role: str) -> None:
    job = replicated_jobs(documents(name))[role]
    pod = job["template"]["spec"]
    (container,) = pod["containers"]
    bad_config, disruption = job["podFailurePolicy"]["rules"]
    assert bad_config == {
        "action": "FailJob",
        "onExitCodes": {"containerName": container["name"], "operator": "In", "values": [2]},
    }
    assert disruption["action"] == "Ignore"
    # Kubernetes admits a podFailurePolicy only with these two.
    assert pod["restartPolicy"] == "Never"
    assert job["podReplacementPolicy"] == "Failed"
    assert pod["securityContext"]["runAsNonRoot"] is True


def validate_compose(compose: Document) -> None:
    # Slow to import, and not only for who validates: pytest imports all that it collects.
    from check_jsonschema.builtin_schemas import get_builtin_schema

    jsonschema.validate(compose, get_builtin_schema("vendor.compose-spec"))


def test_compose_fits_its_schema() -> None:
    (compose,) = documents("compose.yaml")
    validate_compose(compose)


@pytest.mark.parametrize("field", ["entrypoint", "restart", "stop_grace_period"])
def test_a_typing_error_in_compose_is_found(field: str) -> None:
    (compose,) = documents("compose.yaml")
    spoilt = copy.deepcopy(compose)
    spoilt["services"]["learner"][field[:-1]] = spoilt["services"]["learner"].pop(field)
    with pytest.raises(jsonschema.ValidationError):
        validate_compose(spoilt)


def test_compose_shares_the_socket_and_builds_existing_files() -> None:
    (compose,) = documents("compose.yaml")
    services = compose["services"]
    for service in services.values():
        build = service["build"]
        assert (JOBS / build["context"] / build["dockerfile"]).is_file()
        assert "sockets:/sockets" in service["volumes"]
        assert {volume.split(":")[0] for volume in service["volumes"]} <= set(compose["volumes"])
    assert "checkpoints:/checkpoints" in services["learner"]["volumes"]


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
    "requeue": r"",
    "signal": r"TERM@\d+",
    "time": r"\d+:\d\d:\d\d",
}


def wrong_directives(script: str) -> list[str]:
    """The `#SBATCH` lines that are misspelt, misplaced or mix the two ways to ask for memory."""
    head, _, rest = script.partition("\nset -euo pipefail\n")
    wrong = [line for line in rest.splitlines() if line.startswith("#SBATCH")]
    for line in re.findall(r"^#\s*SBATCH.*$", head, re.MULTILINE):
        match = re.fullmatch(r"#SBATCH --([a-z-]+)(?:=(\S+))?", line)
        if line == "#SBATCH hetjob":
            continue
        form = DIRECTIVES.get(match[1]) if match else None
        if match is None or form is None or not re.fullmatch(form, match[2] or ""):
            wrong.append(line)
    return wrong


def test_slurm_directives_are_known() -> None:
    script = (JOBS / "slurm.sbatch").read_text()
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
    ],
)
def test_a_typing_error_in_a_slurm_directive_is_found(line: str) -> None:
    assert wrong_directives(f"#!/usr/bin/env bash\n{line}\n\nset -euo pipefail\n") == [line]


def test_slurm_script_is_valid_shell() -> None:
    subprocess.run(["bash", "-n", JOBS / "slurm.sbatch"], check=True, timeout=60)


def jobset_commands(name: str) -> list[list[str]]:
    pods = [job["template"]["spec"] for job in replicated_jobs(documents(name)).values()]
    return [box["command"] + box["args"] for pod in pods for box in pod["containers"]]


def compose_commands() -> list[list[str]]:
    (compose,) = documents("compose.yaml")
    return [service["entrypoint"] + service["command"] for service in compose["services"].values()]


def slurm_commands() -> list[list[str]]:
    script = (JOBS / "slurm.sbatch").read_text().replace("\\\n", " ")
    found = re.findall(r"^\s*(?!#)[^#\n]*?(seedrl-[a-z-]+ [^|;\n]*)", script, re.MULTILINE)
    return [shlex.split(command) for command in found]


def command_lines() -> dict[str, list[list[str]]]:
    lines = {name: jobset_commands(name) for name in JOBSETS}
    return lines | {"compose.yaml": compose_commands(), "slurm.sbatch": slurm_commands()}


def env_servers(name: str) -> int:
    """How many env servers a job starts."""
    if name in JOBSETS:
        return replicated_jobs(documents(name))["envs"]["parallelism"]
    if name == "compose.yaml":
        (compose,) = documents(name)
        return compose["services"]["envs"]["deploy"]["replicas"]
    component = (JOBS / name).read_text().partition("#SBATCH hetjob")[2]
    nodes, tasks = re.search(r"--nodes=(\d+)\n#SBATCH --ntasks-per-node=(\d+)", component).groups()
    return int(nodes) * int(tasks)


@cache
def help_text(command: str, *arguments: str) -> str:
    """What `COMMAND [ARGUMENTS] --help` prints, unwrapped."""
    child = subprocess.run(
        [sys.executable, "-m", COMMANDS[command], *arguments, "--help"],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "COLUMNS": "400", "TERM": "dumb", "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert child.returncode == 0, child.stderr
    return child.stdout


@pytest.mark.parametrize("name", ALL)
def test_each_job_starts_a_learner_and_env_servers(name: str) -> None:
    commands = command_lines()[name]
    assert sorted(command[0] for command in commands) == ["seedrl-env-server", "seedrl-learner"]
    (learner,) = [command for command in commands if command[0] == "seedrl-learner"]
    assert (ROOT / "configs" / f"{learner[1]}.py").is_file(), f"no bundled config {learner[1]}"


@pytest.mark.parametrize("name", ALL)
def test_env_servers_fill_the_slots_of_the_config(name: str) -> None:
    servers, learner = sorted(command_lines()[name])
    serving = config_file.load(learner[1]).serving
    offered = env_servers(name) * int(servers[servers.index("--num-envs") + 1])
    assert offered == serving.training_slots + serving.evaluation_slots
    # Otherwise the first ones train, and the last one evaluates.
    assert int(learner[learner.index("--env-servers") + 1]) == env_servers(name)


@pytest.mark.parametrize("name", ALL)
def test_commands_accept_the_flags_they_are_given(name: str) -> None:
    for command in command_lines()[name]:
        configs = command[1:2] if command[0] == "seedrl-learner" else []
        known = set(re.findall(r"--[a-z][\w.-]*", help_text(command[0], *configs)))
        given = {word.partition("=")[0] for word in command if word.startswith("--")}
        assert given, f"{command} gives no flag: it was not read correctly"
        assert given - known == set(), f"{command[0]} does not know these flags"
