"""Job files, offline: by schema, by what a schema cannot see, and by what their commands accept.

Those in configs/jobs, which are what `seedrl launch` writes, and others with all of its options.
Each check is also shown a file with a typing error in it, which it must refuse.
"""

import copy
import dataclasses
import json
import re
import shlex
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from envs_server.options import Options, read_options
from learner.cli import learner
from learner.cli.arguments import parse
from learner.cli.launch import rendered
from seedrl import config_file
from seedrl.config import Config
from seedrl.config_checks import check
from seedrl.errors import ConfigError
from seedrl.exit_codes import ExitCode
from tests.architecture.documents import JOBS, job_file

ROOT = Path(__file__).parents[2]
# Beside the files that stand there: each option of `seedrl launch` at least once.
OTHERS = (
    "atari_r2d2 --render jobset --accelerator h100:8 --spot all --queue lab --name probe "
    "--registry registry.example/lab --env-servers 17 --learner-cpus 64 --learner-memory-gib 400 "
    "--env-server-cpus 2 --env-server-memory-gib 3",
    "catch_r2d2 --render jobset --spot env-servers --hosts 1",
    "atari_r2d2 --render slurm --accelerator gpu:2 --queue gpu --env-server-queue cpu --hours 100 "
    "--env-servers 12 --env-servers-per-node 6",
    "cartpole_r2d2 --render slurm",
    "atari_r2d2 --render sky --accelerator tpu-v5e:8 --spot env-servers --env-servers 34",
    "cartpole_r2d2 --render sky --name probe",
    "pong_r2d2 --render compose --accelerator gpu:2 --env-servers 3 --registry registry.example",
)
FILES = (*JOBS, *OTHERS)


def of_engine(engine: str) -> list[str]:
    """The files of an engine, by their names or what they are written from."""
    return [name for name in FILES if f"--render {engine}" in f"{JOBS.get(name)} {name}"]


JOBSETS = of_engine("jobset")
KUBERNETES = "1.37"

Document = dict[str, Any]


@cache
def text_of(name: str) -> str:
    return job_file(name) if name in JOBS else rendered(shlex.split(name))


def documents(name: str) -> list[Document]:
    return list(yaml.safe_load_all(text_of(name)))


def test_the_files_are_what_seedrl_launch_writes() -> None:
    folder = ROOT / "configs" / "jobs"
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        name: job_file(name) for name in JOBS
    }, "make docs writes them"


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
    own_name = kind(files, "JobSet")["metadata"]["name"]
    assert spec["network"]["subdomain"] == own_name
    assert f" --host {own_name}-learner-0-0.{own_name}\n" in text_of(name)
    assert spec["coordinator"]["replicatedJob"] == "learner"
    assert spec["successPolicy"]["targetReplicatedJobs"] == ["learner"]
    assert set(jobs) == {"learner", "envs"}

    policy = kind(files, "NetworkPolicy")["spec"]
    (rule,) = policy["ingress"]
    selected = [policy["podSelector"], *(peer["podSelector"] for peer in rule["from"])]
    key = "jobset.sigs.k8s.io/"
    assert [entry["matchLabels"] for entry in selected] == [
        {f"{key}jobset-name": own_name, f"{key}replicatedjob-name": "learner"},
        {f"{key}jobset-name": own_name, f"{key}replicatedjob-name": "envs"},
    ]
    pod = jobs["learner"]["template"]["spec"]
    ports = {port["name"]: port["containerPort"] for port in pod["containers"][0]["ports"]}
    # Nobody but the kubelet asks for health.
    assert [port["port"] for port in rule["ports"]] == [ports["serving"]]
    assert f"--serving.bind=0.0.0.0:{ports['serving']}" in pod["containers"][0]["args"]
    assert f"--logging.health-bind=0.0.0.0:{ports['health']}" in pod["containers"][0]["args"]
    for probe in ("readinessProbe", "livenessProbe"):
        assert pod["containers"][0][probe]["httpGet"] == {"path": "/healthz", "port": "health"}
    claim = kind(files, "PersistentVolumeClaim")["metadata"]["name"]
    assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == claim
    for job in jobs.values():
        pod = job["template"]["spec"]
        (container,) = pod["containers"]
        mounts = container["volumeMounts"]
        assert [mount["name"] for mount in mounts] == [volume["name"] for volume in pod["volumes"]]
        # Each side has its own secrets, and reads them by the names that the comment gives them.
        secret = pod["volumes"][-1]["secret"]["secretName"]
        text = text_of(name).replace("\\\n#", "")
        (command,) = re.findall(rf"create secret generic {secret} (.*)", text)
        files_of_secret = set(re.findall(r"--from-file=(\S+)", command))
        assert mounts[-1]["mountPath"] == "/secrets"
        used = {word.partition("=/secrets/")[2] for word in container["args"]} - {""}
        assert used == files_of_secret


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


@pytest.mark.parametrize("name", JOBSETS)
@pytest.mark.parametrize("role", ["learner", "envs"])
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
            "values": FINAL_CODES[role],
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
    for service in services.values():
        assert "sockets:/sockets" in service["volumes"]
        assert {volume.split(":")[0] for volume in service["volumes"]} <= set(compose["volumes"])
    assert "checkpoints:/checkpoints" in services["learner"]["volumes"]


@pytest.mark.parametrize("name", [*JOBSETS, *of_engine("compose")])
def test_images_are_those_that_the_file_says_how_to_build(name: str) -> None:
    built = re.findall(
        r"docker build -f (\S+) -t (\S+)(?: --build-arg EXTRA=(\S+))? \.", text_of(name)
    )
    used = re.findall(r"^ +image: (\S+)$", text_of(name), re.MULTILINE)
    assert [image for _, image, _ in built] == used
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
    assert header["primary_tasks"] == ["learner"]
    assert (
        f"seedrl certificates ~/{header['name']}-certificates --host learner-0.{header['name']}\n"
        in text_of(name)
    )
    assert f"sky volumes apply --name {tasks[0]['volumes']['/checkpoints']} " in text_of(name)
    for task in tasks:
        files_used = set(re.findall(r"\$HOME/(secrets/[\w.]+)", task["run"]))
        assert {f"~/{file}" for file in files_used} == set(task["file_mounts"])
        for place, source in task["file_mounts"].items():
            folder = f"~/{header['name']}-certificates"
            assert source == place.replace("~/secrets", folder)
        for script in (task["setup"], task["run"]):
            subprocess.run(["bash", "-n", "-c", script], check=True, timeout=60)


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
    ],
)
def test_a_typing_error_in_a_slurm_directive_is_found(line: str) -> None:
    assert wrong_directives(f"#!/usr/bin/env bash\n{line}\n\nset -euo pipefail\n") == [line]


@pytest.mark.parametrize("name", of_engine("slurm"))
def test_slurm_script_is_valid_shell(name: str) -> None:
    script = text_of(name)
    subprocess.run(["bash", "-n", "-c", script], check=True, timeout=60)
    # What a step gets is what its component has asked for.
    (learner_step, env_server_step) = sorted(
        re.findall(r"srun --het-group=(\d) --cpus-per-task=(\d+)", script)
    )
    asked = re.findall(r"^#SBATCH --cpus-per-task=(\d+)", script, re.MULTILINE)
    assert [learner_step, env_server_step] == list(zip("01", asked, strict=True))


def jobset_commands(name: str) -> list[list[str]]:
    pods = [job["template"]["spec"] for job in replicated_jobs(documents(name)).values()]
    return [box["command"] + box["args"] for pod in pods for box in pod["containers"]]


def compose_commands(name: str) -> list[list[str]]:
    (compose,) = documents(name)
    return [service["entrypoint"] + service["command"] for service in compose["services"].values()]


def commands_of_shell(script: str) -> list[list[str]]:
    script = script.replace("\\\n", " ")
    found = re.findall(r"^\s*(?!#)[^#\n]*?(seedrl-[a-z-]+ [^|;\n]*)", script, re.MULTILINE)
    return [shlex.split(command) for command in found]


# What shells and engines put in their places.
VARIABLES = {
    "HOME": "/home/seedrl",
    "LEARNER_HOST": "learner",
    "SKYPILOT_JOBGROUP_NAME": "seedrl",
    "learner": "learner:8686",
    "secrets": "/secrets",
    "workdir": "/checkpoints",
}


@cache
def command_lines(name: str) -> tuple[list[str], list[str]]:
    """The learner's command and the env servers', as processes get them."""
    if name in JOBSETS:
        lines = jobset_commands(name)
    elif name in of_engine("compose"):
        lines = compose_commands(name)
    elif name in of_engine("sky"):
        lines = [line for task in documents(name)[1:] for line in commands_of_shell(task["run"])]
    else:
        lines = commands_of_shell(text_of(name))
    filled = [
        [re.sub(r"\$[({]?(\w+)[)}]?", lambda found: VARIABLES[found[1]], word) for word in line]
        for line in lines
    ]
    servers, learner_line = sorted(filled)
    assert (learner_line[0], servers[0]) == ("seedrl-learner", "seedrl-env-server")
    return learner_line[1:], servers[1:]


def read_learner(name: str) -> tuple[learner.LearnerOptions, Config]:
    """What the learner makes of its command line. Raises ConfigError as it would."""
    options, config = parse(learner.LearnerOptions, command_lines(name)[0], prog="learner")
    check(options.apply(config))
    return options, config


def read_env_server(name: str) -> Options:
    return read_options(command_lines(name)[1])


def env_servers(name: str) -> int:
    """How many env servers a job starts."""
    if name in JOBSETS:
        return replicated_jobs(documents(name))["envs"]["parallelism"]
    if name in of_engine("compose"):
        (compose,) = documents(name)
        return compose["services"]["envs"]["deploy"]["replicas"]
    if name in of_engine("sky"):
        task = documents(name)[-1]
        return task["num_nodes"] * int(re.search(r"seq (\d+)", task["run"])[1])
    component = text_of(name).partition("#SBATCH hetjob")[2]
    nodes, tasks = re.search(r"--nodes=(\d+)\n#SBATCH --ntasks-per-node=(\d+)", component).groups()
    return int(nodes) * int(tasks)


@pytest.mark.parametrize("name", FILES)
def test_programs_accept_the_commands_that_they_are_given(name: str) -> None:
    options, config = read_learner(name)
    servers = read_env_server(name)
    # Otherwise the first ones train, and the last one evaluates.
    assert options.env_servers == env_servers(name)
    slots = config.serving.training_slots + config.serving.evaluation_slots
    offered = env_servers(name) * servers.num_envs
    assert slots <= offered < slots + env_servers(name)
    # Who serves other machines is asked for certificates, and they have them.
    assert bool(servers.certificate) == bool(config.serving.authority)
    assert bool(config.serving.authority) != config.serving.bind.startswith("unix:")


@pytest.mark.parametrize("name", FILES)
def test_no_job_says_how_to_learn(name: str) -> None:
    _, config = read_learner(name)
    bundled = config_file.load(command_lines(name)[0][0])
    # Where it serves, and to whom, is all that differs.
    placed = dataclasses.replace(
        config,
        serving=dataclasses.replace(
            config.serving, bind="", token_file="", certificate="", private_key="", authority=""
        ),
        logging=dataclasses.replace(config.logging, health_bind=""),
    )
    assert placed == bundled


def test_a_command_that_a_program_would_refuse_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    line, servers = command_lines("jobset-gpu.yaml")
    monkeypatch.setitem(
        globals(), "command_lines", lambda name: ([*line, "--env-server=8"], servers)
    )
    with pytest.raises(ConfigError, match="--env-server"):
        read_learner("jobset-gpu.yaml")
