"""`seedrl launch CONFIG`: a run on an engine that places processes, or its job file for one."""

import importlib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from learner.cli.arguments import parse_flags
from seedrl import config_file
from seedrl.errors import ConfigError
from seedrl.exit_codes import ExitCode

PROG = "seedrl launch"
_ON = "--on"
Engine = Literal["jobset", "slurm", "sky", "compose"]

# Which options mean something to an engine; those that are not here mean something to all.
_ENGINES_OF: dict[str, tuple[Engine, ...]] = {
    "env_servers_per_node": ("slurm", "sky"),
    "registry": ("jobset", "compose"),
    "spot": ("jobset", "sky"),
    "queue": ("jobset", "slurm"),
    "env_server_queue": ("slurm",),
    "hours": ("slurm",),
    "learner_cpus": ("jobset", "slurm", "sky"),
    "learner_memory_gib": ("jobset", "slurm", "sky"),
    "env_server_cpus": ("jobset", "slurm", "sky"),
    "env_server_memory_gib": ("jobset", "slurm", "sky"),
}


@dataclass(frozen=True, kw_only=True)
class LaunchOptions:
    """With --on ray, places a learner and its env servers on the nodes of a Ray cluster and follows
    them: `seedrl launch CONFIG --on ray --help` has its options. With --render, prints the file by
    which another engine runs them on machines of its own. It names processes, resources and where
    things are; how the run learns is in CONFIG alone. docs/scaling.md goes through each engine.

    Attributes:
      config: as of `seedrl train`; the learner reads it where it runs.
      render: Kubernetes JobSet, a Slurm heterogeneous job, a SkyPilot job group, docker compose.
      on: in place of --render, and with options of its own.
      hosts: of the learner, each a process with that accelerator, its part of CONFIG's slots, batch
        and replay, and env servers of its own.
      env_servers: processes, as many for each host; by default CONFIG's `launch.env_servers`.
      env_servers_per_node: of these on one node (slurm, sky); by default up to 4.
      accelerator: of each host of the learner: cpu, gpu (any), l4, a100, a100-80gb, h100, h200,
        tpu-v5e, tpu-v5p, tpu-v6e; with how many of them, tpu-v6e:4, if it is not one.
      name: of the job, and of all that belongs to it.
      registry: where images are pulled from (jobset, compose).
      spot: what may run where machines are taken away at any time: none, env-servers, or all
        (jobset, sky).
      queue: the job waits in: Kueue's local queue (jobset), a partition (slurm).
      env_server_queue: another partition for env servers (slurm).
      hours: after which the job ends (slurm); 24 by default.
      learner_cpus: cores of the learner (jobset, slurm, sky); 8 by default.
      learner_memory_gib: memory of the learner (jobset, slurm, sky); 48 by default.
      env_server_cpus: cores of an env server (jobset, slurm, sky); 4 by default.
      env_server_memory_gib: memory of an env server (jobset, slurm, sky); 4 by default.
    """

    config: Annotated[str, tyro.conf.Positional]
    render: Engine
    on: Literal["ray"] | None = None
    hosts: int = 1
    env_servers: int | None = None
    env_servers_per_node: int | None = None
    accelerator: str = "cpu"
    name: str = "seedrl"
    registry: str | None = None
    spot: Literal["none", "env-servers", "all"] | None = None
    queue: str | None = None
    env_server_queue: str | None = None
    hours: int | None = None
    learner_cpus: int | None = None
    learner_memory_gib: int | None = None
    env_server_cpus: int | None = None
    env_server_memory_gib: int | None = None


def run(argv: Sequence[str]) -> int:
    """Prints the file, or places the run; returns the exit code."""
    if (words := without_on(argv)) is not None:
        from learner.cli import launch_on_ray

        return launch_on_ray.run(words)
    print(rendered(argv), end="")
    return ExitCode.OK


def without_on(argv: Sequence[str]) -> list[str] | None:
    """The other words of a command line with `--on ray`; None if it is not one."""
    at = next((i for i, word in enumerate(argv) if word.partition("=")[0] == _ON), None)
    if at is None:
        return None
    _, equals, engine = argv[at].partition("=")
    rest = argv[at + 1 :]
    if not equals:
        engine, rest = " ".join(rest[:1]), rest[1:]
    if engine != "ray":
        raise ConfigError(f"{_ON}: expected ray, got {engine!r}")
    return [*argv[:at], *rest]


def rendered(argv: Sequence[str]) -> str:
    """The job file that a command line describes. Raises ConfigError if it describes none."""
    from learner.jobs import accelerators
    from learner.jobs.job import Job, needs

    options = parse_flags(LaunchOptions, argv, prog=PROG)
    given = {name: value for name in _ENGINES_OF if (value := getattr(options, name)) is not None}
    for name in given:
        if options.render not in (engines := _ENGINES_OF[name]):
            raise ConfigError(
                f"--{name.replace('_', '-')}: expected only with --render "
                f"{' or '.join(engines)}, got it with {options.render}"
            )
    config = config_file.load(options.config)
    job = Job(
        command=shlex.join([*PROG.split(), *argv]),
        config=options.config,
        needs=needs(config),
        accelerator=accelerators.parse(options.accelerator, options.hosts),
        hosts=options.hosts,
        env_servers=config.launch.env_servers
        if options.env_servers is None
        else options.env_servers,
        name=options.name,
        **given,
    )
    engine = importlib.import_module(f"learner.jobs.{options.render}")
    text: str = engine.render(job)
    return text
