"""The files of configs/jobs, offline: by schema, by shell, and by the parsers of our programs."""

import dataclasses
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest

from envs_server.options import read_options
from learner.cli.arguments import parse
from learner.cli.train import LearnerOptions
from learner.multihost.topology import topology_of
from seedrl import config_io
from seedrl.config import LoggingConfig, check
from tests.configs.placed_processes import (
    FILES,
    FOLDER,
    Document,
    documents,
    placed,
)

KUBERNETES = "1.37"


def own_schema(name: str) -> Document:
    """A closed schema of what there is no public one for."""
    schema: Document = json.loads((Path(__file__).parent / f"{name}.schema.json").read_text())
    return schema


@cache
def compose_validator() -> Any:
    # Slow to import, and not only for who validates: pytest imports all that it collects.
    from check_jsonschema.builtin_schemas import get_builtin_schema

    schema = get_builtin_schema("vendor.compose-spec")
    return jsonschema.validators.validator_for(schema)(schema)


def validate(name: str, files: list[Document]) -> None:
    """Raises a ValidationError unless every document fits its schema."""
    if name.startswith("compose"):
        compose_validator().validate(files[0])
    elif name.startswith("sky"):
        jsonschema.validate(files, own_schema("sky"), cls=jsonschema.Draft202012Validator)
    else:
        for document in files:
            if document["kind"] != "JobSet":
                kubernetes_validate.validate(document, KUBERNETES, strict=True)
                continue
            schema = own_schema("jobset")
            jsonschema.validate(document, schema, cls=jsonschema.Draft202012Validator)
            for job in document["spec"]["replicatedJobs"]:
                head = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job["name"]}}
                kubernetes_validate.validate(head | job["template"], KUBERNETES, strict=True)


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".yaml")])
def test_a_file_fits_its_schema(name: str) -> None:
    validate(name, documents(name))


@pytest.mark.parametrize("name", [name for name in FILES if name.startswith("jobset")])
def test_a_probe_lets_a_learner_restore(name: str) -> None:
    (jobset,) = (each for each in documents(name) if each["kind"] == "JobSet")
    (job,) = (each for each in jobset["spec"]["replicatedJobs"] if each["name"] == "learner")
    (container,) = job["template"]["spec"]["template"]["spec"]["containers"]
    probe = container["livenessProbe"]
    # While it reads its checkpoint, the learner does not answer.
    assert probe["periodSeconds"] * probe["failureThreshold"] >= LoggingConfig().grace_seconds


@pytest.mark.parametrize("name", FILES)
def test_the_command_in_a_file_starts_this_file(name: str) -> None:
    command = r"^# +(?:docker compose -f|kubectl apply -f|sky jobs launch|sbatch) (\S+)"
    started = re.findall(command, (FOLDER / name).read_text(), re.MULTILINE)
    assert [Path(path).name for path in started] == [name]


def _seconds_to_save(name: str) -> list[float]:
    """From SIGTERM to SIGKILL, of each learner."""
    if name.startswith("slurm"):
        text = (FOLDER / name).read_text()
        return [float(found) for found in re.findall(r"#SBATCH --signal=TERM@(\d+)", text)]
    if name.startswith("compose"):
        services = documents(name)[0]["services"].values()
        learners = [each for each in services if "learner" in each["entrypoint"][0]]
        return [float(each["stop_grace_period"].removesuffix("s")) for each in learners]
    (jobset,) = (each for each in documents(name) if each["kind"] == "JobSet")
    jobs = jobset["spec"]["replicatedJobs"]
    pods = [job["template"]["spec"]["template"]["spec"] for job in jobs if job["name"] == "learner"]
    return [float(pod["terminationGracePeriodSeconds"]) for pod in pods]


@pytest.mark.parametrize("name", [name for name in FILES if not name.startswith("sky")])
def test_a_learner_has_the_time_to_save_that_it_allows_itself(name: str) -> None:
    assert set(_seconds_to_save(name)) == {LoggingConfig().grace_seconds}


@pytest.mark.parametrize("name", FILES)
def test_programs_accept_their_commands_and_all_slots_are_filled(name: str) -> None:
    hosts = placed(name)
    offered: dict[str, list[Any]] = {address: [] for address in hosts.learners}
    for words in hosts.env_servers:
        served = read_options(words)
        offered[served.learner].append(served)
    coordinators = set()
    for index, (address, words) in enumerate(hosts.learners.items()):
        options, config = parse(LearnerOptions, words, prog="learner")
        check(config)
        topology = topology_of(options.coordinator, options.process_count, options.process_index)
        assert (topology.process_index, topology.process_count) == (index, len(hosts.learners))
        coordinators.add(topology.coordinator)
        servers = offered[address]
        assert servers
        slots = topology.part(config.serving.training_slots)
        slots += config.serving.evaluation_slots if topology.is_first else 0
        (num_envs,) = {server.num_envs for server in servers}
        assert slots <= num_envs * len(servers) < slots + len(servers)
        # A learner that serves other machines asks for certificates, and they have them.
        assert {bool(server.certificate) for server in servers} == {bool(config.serving.authority)}
        assert {bool(server.token_file) for server in servers} == {bool(config.serving.token_file)}
        assert bool(config.serving.authority) != config.serving.bind.startswith("unix:")
        # How the run learns is in CONFIG alone.
        serving = dataclasses.replace(
            config.serving, bind="", token_file="", certificate="", private_key="", authority=""
        )
        logging = dataclasses.replace(config.logging, health_bind="")
        bare = dataclasses.replace(config, serving=serving, logging=logging)
        assert bare == config_io.load(words[0])
    (coordinator,) = coordinators
    first = next(iter(hosts.learners)).rpartition(":")[0]
    expected = {"sky": "10.0.0.1", "compose": "learner-0"}.get(name.split("-")[0], first)
    assert coordinator == ("" if len(hosts.learners) == 1 else f"{expected}:8690")
