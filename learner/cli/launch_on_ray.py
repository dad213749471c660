"""`seedrl launch CONFIG --on ray`: a run whose processes Ray places on the nodes of a cluster."""

import datetime
import os
import secrets
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from learner.cli import certificates
from learner.cli.arguments import parse
from learner.jobs import accelerators
from learner.jobs.job import Job, needs
from learner.launch.env_servers import private_folder
from learner.launch.supervisor import forward_signals
from learner.on_ray import nodes
from learner.on_ray.order import Order, Secrets, Work
from learner.on_ray.run import Run
from learner.reporting.output import tolerating_lost_output
from learner.reporting.summary import resuming
from seedrl import config_json, config_modules
from seedrl.config import Config
from seedrl.config_checks import check
from seedrl.errors import ConfigError
from seedrl.programs import extras

PROG = "seedrl launch"
# Of a cluster that this machine is not part of.
_FROM_OUTSIDE = "ray://"
_VALID = datetime.timedelta(days=365)


@dataclass(frozen=True, kw_only=True)
class RayOptions:
    """Options of a run on a Ray cluster beside the fields of its configuration.

    Attributes:
      env_servers: processes; by default CONFIG's `launch.env_servers`.
      hosts: of the learner; on Ray only 1.
      workdir: folder of the run, as all nodes see it; by default a new one below runs/ here.
      address: of the cluster: `HOST:6379` on one of its machines, `ray://HOST:10001` from outside;
        by default RAY_ADDRESS, or the cluster that this machine belongs to.
      accelerator: of the learner: cpu, gpu (any), l4, a100, a100-80gb, h100, h200, tpu-v5e,
        tpu-v5p, tpu-v6e; with how many of them, h100:8, if it is not one. By default all of the
        node that has most, or CPUs if none has any.
      learner_cpus: cores of the learner.
      env_server_cpus: cores of an env server.
      allow: what CONFIG may name if it is the config.json of a run: folders of Python files, and
        factories of environments, package.module:factory.
    """

    env_servers: int | None = None
    hosts: int = 1
    workdir: Path | None = None
    address: str | None = None
    accelerator: str | None = None
    learner_cpus: int = 2
    env_server_cpus: int = 1
    allow: tuple[str, ...] | None = None


def run(argv: Sequence[str]) -> int:
    """Places the run and waits until it is over; `argv` is without `--on ray`."""
    options, config = parse(RayOptions, argv, prog=PROG)
    if argv[0].endswith(".json"):
        config_json.require_factories((config.environment.id, *config.environment.wrappers))
    job = described(options, config, argv)
    extras.require("ray")
    extras.require("certificates")
    # Before it is imported: nothing that is started here reports to anybody.
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from learner.on_ray.ray_cluster import RayCluster

    address = options.address or os.environ.get("RAY_ADDRESS", "auto")
    workdir = workdir_of(options.workdir, address, Path(argv[0]).stem, config.seed)
    with (
        private_folder() as folder,
        RayCluster(address) as cluster,
        tolerating_lost_output(),
    ):
        placed = Run(
            cluster,
            _order(options, config, job, workdir, cluster.nodes(), Path(argv[0]).stem),
            lambda host: issue(folder, host),
            say=lambda line: print(line, file=sys.stderr, flush=True),
            write=lambda text: print(text, end="", flush=True),
        )
        # Ray has handlers of its own by now, which these take the place of.
        with forward_signals(placed.signal), placed:
            return placed.wait()


def described(options: RayOptions, config: Config, argv: Sequence[str]) -> Job:
    """What is placed, and how. Raises ConfigError if it cannot be."""
    number = config.launch.env_servers if options.env_servers is None else options.env_servers
    if options.hosts != 1:
        raise ConfigError(
            f"--hosts: expected 1 with --on ray, which places one learner, got {options.hosts}; "
            "--render writes files for several"
        )
    _check_bare(config)
    return Job(
        command=shlex.join([*PROG.split(), *argv[:1], "--on", "ray", *argv[1:]]),
        config=argv[0],
        needs=needs(config),
        accelerator=accelerators.parse(options.accelerator or accelerators.CPU),
        env_servers=number,
        learner_cpus=options.learner_cpus,
        env_server_cpus=options.env_server_cpus,
    )


def _check_bare(config: Config) -> None:
    """Refuses an address or secrets: those of a learner that is placed are made for where it is."""
    serving = config.serving
    given = ("bind", "token_file", "certificate", "private_key", "authority", "insecure")
    for name in given:
        if getattr(serving, name):
            raise ConfigError(
                f"serving.{name}: expected nothing with --on ray, which makes an address, a token "
                f"and certificates, got {getattr(serving, name)!r}"
            )
    check(config)


def _order(
    options: RayOptions,
    config: Config,
    job: Job,
    workdir: Path,
    there: Sequence[nodes.Node],
    name: str,
) -> Order:
    folders = config_modules.import_folders()
    wanted = None if options.accelerator is None else job.accelerator
    allowing = ("--allow", *folders) if folders else ()
    return Order(
        work=Work(job, workdir, secrets.token_hex(16), folders),
        config=config_json.to_json(config),
        options=(f"--name={name}", f"--user-command={job.command}", *allowing),
        learner=nodes.of_learner(options.learner_cpus, wanted, there),
        env_server=nodes.Demand(options.env_server_cpus),
        grace_seconds=config.logging.grace_seconds,
        restarts=config.launch.restarts,
        version=metadata.version("seedrl"),
        start_command=job.command,
        resume_command=shlex.join(resuming(job.command, workdir)),
    )


def workdir_of(given: Path | None, address: str, name: str, seed: int) -> Path:
    """The run's folder, as nodes see it. Raises ConfigError if they would not."""
    if address.startswith(_FROM_OUTSIDE) and (given is None or not given.is_absolute()):
        raise ConfigError(
            f"--workdir: expected an absolute path, as the nodes of {address} see it, got {given}"
        )
    now = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    return (given or Path("runs") / f"{name}__{seed}__{now}").absolute()


def issue(folder: Path, host: str) -> Secrets:
    """The secrets of a learner at that address, and of its env servers; theirs stay good."""
    certificates.make(folder, [host], _VALID)

    def of(side: str) -> dict[str, str]:
        names = ("token", "ca.pem", f"{side}.pem", f"{side}.key")
        return {name: (folder / name).read_text() for name in names}

    return Secrets(of("learner"), of("env_server"))
