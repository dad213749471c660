import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from envs_server.options import read_options
from learner.jobs import accelerators, commands
from learner.jobs.job import Job, Needs, needs
from seedrl import config_file
from seedrl.config import LaunchConfig
from seedrl.errors import ConfigError

ROOT = Path(__file__).parents[3]


NEEDS = Needs(
    training_slots=32, evaluation_slots=20, groups=2, factories=(), extra="", regime="asynchronous"
)


def job(**changes: Any) -> Job:
    fields: dict[str, Any] = {
        "command": "seedrl launch catch_r2d2",
        "config": "catch_r2d2",
        "needs": NEEDS,
        "accelerator": accelerators.parse("cpu"),
    }
    return Job(**(fields | changes))


@pytest.mark.parametrize(
    ("env_servers", "environments", "per_node", "nodes"),
    [(1, 52, 1, 1), (2, 26, 2, 1), (6, 9, 3, 2), (8, 7, 4, 2), (13, 4, 1, 13), (52, 1, 4, 13)],
)
def test_env_servers_fill_the_slots_and_share_out_nodes(
    env_servers: int, environments: int, per_node: int, nodes: int
) -> None:
    found = job(env_servers=env_servers)
    assert (found.environments, found.per_node, found.nodes) == (environments, per_node, nodes)


@pytest.mark.parametrize(
    ("hosts", "env_servers", "slots", "environments"),
    [
        (2, 2, [36, 16], [36, 16]),
        (2, 8, [36, 16], [9, 4]),
        (3, 6, [31, 11, 10], [16, 6, 6]),
        (32, 32, [21, *[1] * 31], [21, *[1] * 31]),
    ],
)
def test_env_servers_of_each_host_fill_its_own_slots(
    hosts: int, env_servers: int, slots: list[int], environments: list[int]
) -> None:
    found = job(hosts=hosts, env_servers=env_servers)
    assert [found.slots_of(host) for host in range(hosts)] == slots
    others = [found.environments_of_others] * (hosts - 1)
    assert [found.environments, *others] == environments


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hosts": 0}, "--hosts: expected 1 to 32, the training slots of catch_r2d2, got 0"),
        ({"hosts": 33, "env_servers": 33}, "--hosts: expected 1 to 32"),
        ({"hosts": 2, "env_servers": 3}, "--env-servers: expected as many for each of the 2 hosts"),
        ({"hosts": 3, "env_servers": 33}, "at most 10 for its training slots, got 33 in all"),
        (
            {"hosts": 2, "needs": NEEDS._replace(regime="lock_step")},
            "--hosts: catch_r2d2 has learning.regime lock_step, which is for one host",
        ),
        ({"env_servers": 0}, "--env-servers: expected 1 to 52, the slots of catch_r2d2, got 0"),
        ({"env_servers": 53}, "--env-servers: expected 1 to 52"),
        ({"env_servers": 8, "env_servers_per_node": 3}, "divides 8 env servers, got 3"),
        ({"env_servers_per_node": 0}, "--env-servers-per-node: expected"),
        ({"hours": 0}, "--hours: expected at least 1, got 0"),
        ({"env_server_memory_gib": 0}, "--env-server-memory-gib: expected at least 1"),
        ({"name": "My_run"}, "--name: expected at most 40 lower-case"),
        ({"name": "yes"}, "--name: expected"),
        ({"name": "a" * 41}, "--name: expected"),
        ({"queue": "a b"}, "--queue: expected one word, got 'a b'"),
        ({"registry": "x\ny"}, "--registry: expected one word"),
        ({"config": "$HOME/config.py"}, "CONFIG: expected printable text without"),
        ({"config": "a\nb.py"}, "CONFIG: expected printable text"),
    ],
)
def test_a_job_that_cannot_work_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        job(**changes)


def test_what_a_configuration_says_of_env_servers_is_in_their_command() -> None:
    config = config_file.load("catch_r2d2")
    assert needs(config).options == ()
    launch = LaunchConfig(group_threads=True, max_memory_mib=300, local_link=False)
    found = job(needs=needs(dataclasses.replace(config, launch=launch)))
    _, *words = commands.env_server(found, learner="a:1")
    options = read_options(words)
    assert (options.group_threads, options.max_memory_mib, options.local_link) == (True, 300, False)


def test_bundled_environments_come_with_the_extra_that_brings_them() -> None:
    found = {}
    for name in config_file.bundled_names():
        documented = re.search(
            r"pip install '\.\[(\w+)\]' *` where env servers run|pip install '\.\[(\w+)\]'`",
            (config_file.bundled_folder() / f"{name}.py").read_text(),
        )
        extra = needs(config_file.load(name)).extra
        if documented:
            assert extra == (documented[1] or documented[2]), name
        found[name] = extra
    assert {extra for extra in found.values()} == {
        "",
        "atari",
        "box2d",
        "minatar",
        "mujoco",
        "popgym",
    }
    assert (found["pong_ppo"], found["cartpole_r2d2"]) == ("atari", "")


def test_env_servers_are_told_which_factories_of_others_they_may_build() -> None:
    config = config_file.load(ROOT / "docs" / "examples" / "own_environment" / "config.py")
    assert needs(config).factories == (config.environment.id,)
    assert needs(config_file.load("recall_r2d2")).factories == ()
