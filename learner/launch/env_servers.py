"""The env servers of a run on this machine: how many, of what size, and their command lines."""

import contextlib
import dataclasses
import math
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from learner.launch.child import Command
from seedrl.config import Config, EnvironmentConfig, ServingConfig
from seedrl.config_io import path_for_children
from seedrl.errors import ConfigError
from seedrl.programs.abandoned import holding, remove_abandoned
from seedrl.wire.version import MOST_GROUPS

# Many env servers share few cores: each steps its environments in one thread.
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_PREFIX = "seedrl-"
_LONGEST_FOLDER = 80  # of the 107 bytes that a socket's path may have


class Fleet(NamedTuple):
    """`num_servers` env servers of `num_envs` environments each, stepped in `num_groups` groups.

    `local_link`, `max_memory_mib`, `group_threads`: see `seedrl.config.LaunchConfig`.
    """

    num_servers: int
    num_envs: int
    num_groups: int
    local_link: bool = True
    max_memory_mib: int = 0
    group_threads: bool = False


def plan(
    config: Config,
    *,
    env_servers: int | None = None,
    envs_per_server: int | None = None,
    groups: int | None = None,
) -> tuple[Config, Fleet]:
    """Fits env servers and slots to each other.

    By default the slots are shared out evenly. Where the environments of a server are given, they
    decide: training gets all but the evaluation slots.

    Args:
      config: the run; its `launch` holds for what is None.
      env_servers: number of env-server processes.
      envs_per_server: environments of each; 0 shares the slots out evenly.
      groups: groups that an env server steps interleaved.

    Returns:
      The configuration with its training slots and `launch` set accordingly, and the fleet.

    Raises:
      ConfigError: a number is too small, or no environment is left for training.
    """
    launch, serving = config.launch, config.serving
    num_servers = launch.env_servers if env_servers is None else env_servers
    num_envs = launch.envs_per_server if envs_per_server is None else envs_per_server
    num_groups = launch.groups if groups is None else groups
    _check_range("env-servers", num_servers, 1)
    _check_range("envs-per-server", num_envs, 0)
    _check_range("groups", num_groups, 1, MOST_GROUPS)
    _check_range("launch.max-memory-mib", launch.max_memory_mib, 0)
    if num_envs and (env_servers is not None or envs_per_server is not None):
        training = num_servers * num_envs - serving.evaluation_slots
        if training < 1:
            raise ConfigError(
                f"--env-servers {num_servers} times --envs-per-server {num_envs} leaves no "
                f"environment for training beside {serving.evaluation_slots} evaluation slots; "
                "start more environments or set --serving.evaluation-slots"
            )
        serving = dataclasses.replace(serving, training_slots=training)
    slots = serving.training_slots + serving.evaluation_slots
    launch = dataclasses.replace(
        launch, env_servers=num_servers, envs_per_server=num_envs, groups=num_groups
    )
    num_envs = num_envs or math.ceil(slots / num_servers)
    fitted = dataclasses.replace(config, serving=serving, launch=launch)
    options = (launch.local_link, launch.max_memory_mib, launch.group_threads)
    return fitted, Fleet(num_servers, num_envs, min(num_groups, num_envs), *options)


class HostFleet(NamedTuple):
    """The env servers of one host of a run: the first of them has the number `first`."""

    fleet: Fleet
    first: int = 0


def of_hosts(fleet: Fleet, serving: ServingConfig, hosts: int) -> list[HostFleet]:
    """The env servers dealt to hosts, those of each with as many environments as its slots take.

    Raises ConfigError if there is not one for each, or no slot to train in.
    """
    _check_range("hosts", hosts, 1)
    if hosts == 1:
        return [HostFleet(fleet)]
    if fleet.num_servers < hosts:
        raise ConfigError(
            f"--env-servers: expected at least one for each of the {hosts} hosts, got "
            f"{fleet.num_servers}"
        )
    if serving.training_slots < hosts:
        raise ConfigError(
            f"--hosts: expected at most {serving.training_slots}, one for each training slot, got "
            f"{hosts}"
        )
    found, first = [], 0
    for index in range(hosts):
        number = len(range(index, fleet.num_servers, hosts))
        slots = len(range(index, serving.training_slots, hosts))
        slots += serving.evaluation_slots if index == 0 else 0
        num_envs = math.ceil(slots / number)
        own = fleet._replace(
            num_servers=number, num_envs=num_envs, num_groups=min(fleet.num_groups, num_envs)
        )
        found.append(HostFleet(own, first))
        first += number
    return found


def _check_range(flag: str, number: int, least: int, most: float = math.inf) -> None:
    if number < least:
        raise ConfigError(f"--{flag}: expected at least {least}, got {number}")
    if number > most:
        raise ConfigError(f"--{flag}: expected at most {most}, got {number}")


def on_private_socket(serving: ServingConfig, address: str) -> ServingConfig:
    """Serves this process's own env servers there, which need no token nor certificates."""
    return dataclasses.replace(
        serving,
        bind=address,
        token_file="",
        certificate="",
        private_key="",
        authority="",
        insecure=False,
    )


def commands(
    fleet: Fleet,
    environment: EnvironmentConfig,
    *,
    address: str,
    logs: Path,
    token_file: str = "",
    first: int = 0,
) -> list[Command]:
    """The env servers' command lines; their output goes to `logs`, which is made.

    They are numbered from `first` on. `token_file` holds what the learner asks for. Raises
    ConfigError if the folder cannot be made.
    """
    try:
        logs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"--workdir: cannot write in {logs.parent} ({error.strerror}); choose another folder"
        ) from error
    factories = [name for name in (environment.id, *environment.wrappers) if ":" in name]
    arguments = [sys.executable, "-P", "-m", "envs_server", "--learner", address]
    arguments += ["--num-envs", str(fleet.num_envs), "--groups", str(fleet.num_groups)]
    if token_file:
        arguments += ["--token-file", token_file]
    if not fleet.local_link:
        arguments += ["--no-local-link"]
    if fleet.max_memory_mib:
        arguments += ["--max-memory-mib", str(fleet.max_memory_mib)]
    if fleet.group_threads:
        arguments += ["--group-threads"]
    for name in dict.fromkeys(factories):
        arguments += ["--allow-env", name]
    variables = env_server_environment()
    return [
        Command(
            name=f"env server {index}",
            arguments=(*arguments, "--sent-log", str(logs / f"env_server_{index}.sent")),
            environment=variables,
            log=logs / f"env_server_{index}.log",
            ending=signal.SIGKILL,
        )
        for index in range(first, first + fleet.num_servers)
    ]


def env_server_environment() -> Mapping[str, str]:
    """What `child_environment` says, and one thread for each numerical library."""
    return {**child_environment(), **dict.fromkeys(_ONE_THREAD, "1")}


def child_environment() -> Mapping[str, str]:
    """This process's environment variables, with the folders of config files on Python's path.

    For `python -P`: otherwise the current folder would come before them.
    """
    return {**os.environ, "PYTHONPATH": path_for_children()}


@contextlib.contextmanager
def private_folder() -> Iterator[Path]:
    """A folder that only this user can enter, with room for a socket's path; removed at the end.

    Those of processes that were killed are removed now.
    """
    folder = tempfile.gettempdir()
    # The path of a socket is short by law of the kernel, whatever TMPDIR says.
    parent = folder if len(os.fsencode(folder)) <= _LONGEST_FOLDER else "/tmp"
    for left in Path(parent).glob(f"{_PREFIX}*"):
        remove_abandoned(left)
    with (
        tempfile.TemporaryDirectory(prefix=_PREFIX, dir=parent, ignore_cleanup_errors=True) as own,
        holding(Path(own)),
    ):
        yield Path(own)


@contextlib.contextmanager
def socket_address() -> Iterator[str]:
    """The address of a unix socket in a folder of its own; see `private_folder`."""
    with private_folder() as folder:
        yield f"unix:{folder}/learner"
