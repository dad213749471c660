"""How env servers and slots are fitted to each other, and their command lines."""

import dataclasses
import os
import signal
import stat
import sys
import tempfile
from pathlib import Path

import pytest

from envs_server.options import read_options
from learner.launch import env_servers
from learner.launch.env_servers import Fleet
from seedrl import config_io
from seedrl.config import Config, EnvironmentConfig, LaunchConfig, ServingConfig
from seedrl.errors import ConfigError


def config(*, training: int = 32, evaluation: int = 20, **launch: int) -> Config:
    return Config(
        environment=EnvironmentConfig(id="CartPole-v1"),
        agent=None,
        serving=ServingConfig(training_slots=training, evaluation_slots=evaluation),
        launch=LaunchConfig(**launch),
    )


@pytest.mark.parametrize(
    ("training", "servers", "envs"), [(32, 2, 26), (33, 2, 27), (1, 4, 6), (32, 1, 52)]
)
def test_slots_are_shared_out_evenly(training: int, servers: int, envs: int) -> None:
    given = config(training=training, env_servers=servers)
    fitted, planned = env_servers.plan(given)
    assert planned == Fleet(servers, envs, 2)
    assert fitted == given


def test_other_env_servers_leave_the_slots_alone() -> None:
    fitted, planned = env_servers.plan(config(), env_servers=4)
    assert planned == Fleet(4, 13, 2)
    assert fitted.serving.training_slots == 32
    assert fitted.launch.env_servers == 4


def test_given_environments_decide_how_many_slots_train() -> None:
    fitted, planned = env_servers.plan(config(), env_servers=3, envs_per_server=16)
    assert planned == Fleet(3, 16, 2)
    assert fitted.serving == ServingConfig(training_slots=28, evaluation_slots=20)


def test_more_servers_of_a_fixed_size_mean_more_training() -> None:
    fitted, planned = env_servers.plan(config(envs_per_server=26), env_servers=3)
    assert planned == Fleet(3, 26, 2)
    assert fitted.serving.training_slots == 58


def test_without_flags_the_slots_are_those_of_the_config() -> None:
    given = config(envs_per_server=30)
    assert env_servers.plan(given) == (given, Fleet(2, 30, 2))


def test_no_group_is_empty() -> None:
    _, planned = env_servers.plan(config(training=1, evaluation=0), env_servers=1, groups=4)
    assert planned == Fleet(1, 1, 1)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"env_servers": 0}, "--env-servers: expected at least 1, got 0"),
        ({"envs_per_server": -1}, "--envs-per-server: expected at least 0, got -1"),
        ({"groups": 0}, "--groups: expected at least 1, got 0"),
        ({"groups": 1001}, "--groups: expected at most 1000, got 1001"),
        ({"envs_per_server": 10}, "leaves no environment for training beside 20"),
    ],
)
def test_a_fleet_that_cannot_train_is_refused(numbers: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        env_servers.plan(config(), **numbers)
    with pytest.raises(ConfigError, match="--launch.max-memory-mib: expected at least 0, got -1"):
        env_servers.plan(config(max_memory_mib=-1))


def test_env_servers_may_build_only_what_the_config_names(tmp_path: Path) -> None:
    environment = EnvironmentConfig(id="own.envs:make", wrappers=("own.wrap:first", "w:second"))
    first, second = env_servers.commands(
        Fleet(2, 16, 2), environment, address="unix:/run/s", logs=tmp_path / "logs"
    )
    assert first.arguments == (
        *(sys.executable, "-P", "-m", "envs_server", "--learner", "unix:/run/s"),
        *("--num-envs", "16", "--groups", "2"),
        *("--allow-env", "own.envs:make"),
        *("--allow-env", "own.wrap:first", "--allow-env", "w:second"),
        *("--sent-log", str(tmp_path / "logs" / "env_server_0.sent")),
    )
    assert (first.name, second.name) == ("env server 0", "env server 1")
    assert second.log == tmp_path / "logs" / "env_server_1.log"
    assert second.ending is signal.SIGKILL
    assert second.environment["OMP_NUM_THREADS"] == "1"
    assert (tmp_path / "logs").is_dir()


def test_a_registered_environment_needs_no_permission(tmp_path: Path) -> None:
    (command,) = env_servers.commands(
        Fleet(1, 1, 1), EnvironmentConfig(id="CartPole-v1"), address="a:1", logs=tmp_path
    )
    assert "--allow-env" not in command.arguments


def test_a_limit_of_memory_reaches_the_env_servers(tmp_path: Path) -> None:
    environment = EnvironmentConfig(id="CartPole-v1")
    _, planned = env_servers.plan(config(max_memory_mib=300))
    for command in env_servers.commands(planned, environment, address="a:1", logs=tmp_path):
        index = command.arguments.index("--max-memory-mib")
        assert command.arguments[index + 1] == "300"


@pytest.mark.parametrize("group_threads", [False, True])
def test_threads_of_groups_are_asked_for_if_they_are_wanted(
    group_threads: bool, tmp_path: Path
) -> None:
    environment = EnvironmentConfig(id="CartPole-v1")
    _, planned = env_servers.plan(config(group_threads=group_threads))
    for command in env_servers.commands(planned, environment, address="a:1", logs=tmp_path):
        words = command.arguments[command.arguments.index("--learner") :]
        assert read_options(words).group_threads == group_threads


def test_children_find_the_modules_beside_a_config_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/before")
    monkeypatch.setattr(config_io, "_folders", [str(tmp_path)])
    folders = [str(tmp_path), os.getcwd(), "/before"]
    assert env_servers.child_environment()["PYTHONPATH"] == os.pathsep.join(folders)
    monkeypatch.delenv("PYTHONPATH")
    monkeypatch.setattr(config_io, "_folders", [])
    assert env_servers.child_environment()["PYTHONPATH"] == os.getcwd()


def test_the_socket_is_in_a_folder_of_this_user_alone() -> None:
    with env_servers.socket_address() as address:
        folder = Path(address.removeprefix("unix:")).parent
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert len(address) <= 107
        (folder / "learner").touch()
    assert not folder.exists()


def test_the_socket_is_short_however_long_the_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with env_servers.socket_address() as address:
        assert len(address) <= 107


def test_the_config_is_not_changed_in_place() -> None:
    given = config()
    copy = dataclasses.replace(given)
    env_servers.plan(given, env_servers=3, envs_per_server=16)
    assert given == copy


@pytest.mark.parametrize(
    ("servers", "hosts", "expected"),
    [
        (2, 1, [(2, 26, 0)]),
        (2, 2, [(1, 36, 0), (1, 16, 1)]),
        (5, 2, [(3, 12, 0), (2, 8, 3)]),
        (3, 3, [(1, 31, 0), (1, 11, 1), (1, 10, 2)]),
    ],
)
def test_hosts_share_env_servers_which_fill_the_slots_of_each(
    servers: int, hosts: int, expected: list[tuple[int, int, int]]
) -> None:
    fitted, planned = env_servers.plan(config(), env_servers=servers)
    found = env_servers.of_hosts(planned, fitted.serving, hosts)
    assert [(fleet.num_servers, fleet.num_envs, first) for fleet, first in found] == expected


def test_a_host_without_an_env_server_is_refused() -> None:
    fitted, planned = env_servers.plan(config(), env_servers=1)
    with pytest.raises(ConfigError, match="--env-servers: expected at least one for each of the 2"):
        env_servers.of_hosts(planned, fitted.serving, 2)


@pytest.mark.parametrize(
    ("hosts", "expected"), [(0, "at least 1"), (-1, "at least 1"), (3, "at most 2")]
)
def test_hosts_that_would_have_nothing_to_train_are_refused(hosts: int, expected: str) -> None:
    fitted, planned = env_servers.plan(config(training=2), env_servers=4)
    with pytest.raises(ConfigError, match=f"--hosts: expected {expected}.*got {hosts}"):
        env_servers.of_hosts(planned, fitted.serving, hosts)
