"""What the processes of a job file make of their commands: nothing is refused."""

import dataclasses

import pytest

from envs_server.options import Options, read_options
from learner.cli import train
from learner.cli.arguments import parse
from learner.hosts.place import Place, place_of
from seedrl import config_file
from seedrl.config import Config
from seedrl.config_checks import check
from seedrl.errors import ConfigError
from tests.configs.job_files import FILES
from tests.configs.placed_processes import placed


def read_learner(words: list[str]) -> tuple[train.LearnerOptions, Config, Place]:
    """What a learner makes of its command line. Raises ConfigError as it would."""
    options, config = parse(train.LearnerOptions, words, prog="learner")
    check(options.apply(config))
    return options, config, place_of(options.coordinator, options.hosts, options.host_index)


def env_servers_of(name: str) -> dict[str, list[Options]]:
    """The env servers of a file, by the learner that they dial."""
    found: dict[str, list[Options]] = {address: [] for address in placed(name).learners}
    for words in placed(name).env_servers:
        options = read_options(words)
        found[options.learner].append(options)
    return found


@pytest.mark.parametrize("name", FILES)
def test_programs_accept_the_commands_that_they_are_given(name: str) -> None:
    hosts = env_servers_of(name)
    for address, words in placed(name).learners.items():
        options, config, place = read_learner(words)
        servers = hosts[address]
        # Otherwise the first ones train, and the last one evaluates.
        assert options.env_servers == len(servers) > 0
        slots = place.part(config.serving.training_slots)
        slots += config.serving.evaluation_slots if place.is_first else 0
        (offered,) = {server.num_envs for server in servers}
        # Where training slots are no multiple of hosts, the last ones have one less.
        assert slots <= offered * len(servers) < slots + len(servers) + (place.num_hosts > 2)
        # Who serves other machines is asked for certificates, and they have them.
        assert {bool(server.certificate) for server in servers} == {bool(config.serving.authority)}
        assert bool(config.serving.authority) != config.serving.bind.startswith("unix:")
        # Hosts that meet are asked for the token, and so are their env servers then.
        assert {bool(server.token_file) for server in servers} == {bool(config.serving.token_file)}
        assert place.num_hosts == 1 or config.serving.token_file


@pytest.mark.parametrize("name", FILES)
def test_each_host_of_a_learner_is_started_once_and_all_meet_at_the_first(name: str) -> None:
    places = [read_learner(words)[2] for words in placed(name).learners.values()]
    assert [place.host_index for place in places] == list(range(len(places)))
    assert {place.num_hosts for place in places} == {len(places)}
    (coordinator,) = {place.coordinator for place in places}
    first = next(iter(placed(name).learners))
    if len(places) == 1:
        assert coordinator == ""
    elif first.startswith("unix:"):
        assert coordinator == "learner-0:8690"
    elif "10.0.0.1" in coordinator:  # the engine gives addresses, and names to others alone
        assert coordinator == "10.0.0.1:8690"
    else:
        assert coordinator == f"{first.rpartition(':')[0]}:8690"


@pytest.mark.parametrize("name", FILES)
def test_no_job_says_how_to_learn(name: str) -> None:
    for words in placed(name).learners.values():
        _, config, _ = read_learner(words)
        bundled = config_file.load(words[0])
        # Where it serves, and to whom, is all that differs.
        placed_there = dataclasses.replace(
            config,
            serving=dataclasses.replace(
                config.serving, bind="", token_file="", certificate="", private_key="", authority=""
            ),
            logging=dataclasses.replace(config.logging, health_bind=""),
        )
        assert placed_there == bundled


def test_a_command_that_a_program_would_refuse_is_found() -> None:
    (words,) = placed("jobset-gpu.yaml").learners.values()
    with pytest.raises(ConfigError, match="--env-server"):
        read_learner([*words, "--env-server=8"])
