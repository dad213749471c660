"""`seedrl launch CONFIG --on ray`: a run whose processes Ray places on the nodes of a cluster."""

import datetime
import os
import secrets
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from learner.cli.arguments import parse, require_at_least, require_positive
from learner.processes import env_servers
from learner.report.terminal import resuming
from seedrl import config_io
from seedrl.config import Config, check
from seedrl.errors import ConfigError
from seedrl.fields import with_fields
from seedrl.hints import require_extra

PROG = "seedrl launch"
# Of a cluster that this machine is not part of.
_FROM_OUTSIDE = "ray://"
_CONFIG = "config.json"
_VALID = datetime.timedelta(days=365)
# Below the range from which kernels take ports of clients.
_PORTS = range(20_000, 30_000)


@dataclass(frozen=True, kw_only=True)
class LaunchOptions:
    """Run on a Ray cluster.

    Places the learner and the env servers on the nodes of the cluster. For Kubernetes, Slurm,
    SkyPilot and docker compose adapt a file of configs/jobs.

    Example: seedrl launch pong_ppo --on ray --learner-gpus 1 --workdir /shared/pong

    Attributes:
      on: cluster scheduler; only ray so far.
      workdir: directory of the run, as all nodes see it; by default a new one in runs/ here.
      address: address of the cluster: HOST:6379 on one of its machines, ray://HOST:10001 from
        outside; by default RAY_ADDRESS, or the cluster of this machine.
      learner_cpus: CPUs of the learner, as Ray counts them; may be fractional.
      learner_gpus: GPUs of the learner; a whole number, or a part of one.
      learner_tpus: TPU chips of the learner.
      env_server_cpus: CPUs of each env server, as Ray counts them; 1 makes an autoscaling cluster
        start a CPU for each.
      wait_seconds: longest wait for free resources; an autoscaling cluster needs minutes.
      allow: code that CONFIG may name if CONFIG is a run's config.json: directories of Python
        files, and environment factories (package.module:factory).
    """

    on: Literal["ray"]
    workdir: Path | None = None
    address: str | None = None
    learner_cpus: float = 0.5
    learner_gpus: float = 0.0
    learner_tpus: int = 0
    env_server_cpus: float = 0.25
    wait_seconds: float = 30.0
    allow: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        require_positive(self, "learner_cpus", "env_server_cpus", "wait_seconds")
        require_at_least(self, learner_gpus=0, learner_tpus=0)
        if self.learner_gpus > 1 and self.learner_gpus % 1:  # Ray shares out a single one only
            got = f"got {self.learner_gpus:g}"
            raise ConfigError(f"--learner-gpus: expected 0 to 1, or a whole number, {got}")


def run(argv: Sequence[str]) -> int:
    options, config, fleet = read(argv)
    require_extra("ray")
    require_extra("certificates")
    # Before it is imported: nothing that is started here reports to anybody.
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from learner.extras import ray_launch

    address = options.address or os.environ.get("RAY_ADDRESS", "auto")
    name, command = Path(argv[0]).stem, shlex.join([*PROG.split(), *argv])
    workdir = workdir_of(options.workdir, address, name, config.seed)
    folders = config_io.import_folders()
    words = ["--workdir", str(workdir), "--name", name]
    words += ["--user-command", command, *(("--allow", *folders) if folders else ())]
    # By Ray's names; an amount of 0 is not asked for.
    asked = {"CPU": options.learner_cpus, "GPU": options.learner_gpus, "TPU": options.learner_tpus}
    work = ray_launch.Work(
        learner=learner_words(words),
        env_server=env_server_words(config, fleet),
        files={_CONFIG: config_io.to_json(config), **make_secrets()},
        issue=issue,
        port=secrets.choice(_PORTS),  # a cluster may have several runs
        num_env_servers=fleet.num_servers,
        import_folders=folders,
        learner_resources={name: amount for name, amount in asked.items() if amount},
        env_server_cpus=options.env_server_cpus,
        wait_seconds=options.wait_seconds,
    )
    resume = shlex.join(resuming(command, workdir))
    return ray_launch.launch(work, address=address, resume=resume)


def learner_words(words: Sequence[str]) -> list[str]:
    """The learner's command line after the interpreter, as `Work` has it."""
    files = {"token-file": "token", **_tls("learner")}
    secured = [f"--serving.{flag}={{folder}}/{name}" for flag, name in files.items()]
    # -P: nothing is imported from the folder in which a node starts it.
    own = ["-P", "-m", "learner", f"{{folder}}/{_CONFIG}"]
    return [*own, *words, "--serving.bind={address}", *secured]


def env_server_words(config: Config, fleet: env_servers.Fleet) -> list[str]:
    """An env server's command line after the interpreter, as `Work` has it."""
    placed = env_servers.on_private_socket(config, "{address}")
    placed = with_fields(placed, {"serving.token_file": "{folder}/token"})
    with env_servers.private_folder() as folder:
        words = env_servers.command(fleet._replace(num_servers=1), placed, logs=folder)[1:]
    # Its actor restarts it, and Ray keeps its log: without a parent process of its own.
    for flag in ("--processes", "--logs"):
        del words[(at := words.index(flag)) : at + 2]
    files = _tls("env_server").items()
    return [*words, *(f"--{flag}={{folder}}/{name}" for flag, name in files)]


def _tls(side: str) -> dict[str, str]:
    return {"authority": "ca.pem", "certificate": f"{side}.pem", "private-key": f"{side}.key"}


def read(argv: Sequence[str]) -> tuple[LaunchOptions, Config, env_servers.Fleet]:
    """The options, the configuration and its env servers. Raises ConfigError as they do."""
    options, config = parse(LaunchOptions, argv, prog=PROG)
    for name in ("bind", "token_file", "certificate", "private_key", "authority", "insecure"):
        if getattr(config.serving, name):
            raise ConfigError(
                f"serving.{name}: expected nothing with --on ray, which makes an address, a token "
                f"and certificates, got {getattr(config.serving, name)!r}"
            )
    fleet = env_servers.plan(config)
    check(config)
    return options, config, fleet


def make_secrets() -> dict[str, str]:
    """An authority with its key, a token and the env servers' certificate, by file name."""
    from learner.cli import certificates  # needs the extra

    # With the authority's key: which host the learner is on is known only once Ray has placed it.
    with env_servers.private_folder() as folder:
        certificates.make(folder, (), _VALID)
        return {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}


def issue(folder: Path, host: str) -> None:
    """Makes a learner's certificate for that host by the authority whose files are there."""
    from learner.cli import certificates

    certificates.make(folder, [host], _VALID)


def workdir_of(given: Path | None, address: str, name: str, seed: int) -> Path:
    """The run's directory, as nodes see it. Raises ConfigError if they would not."""
    if address.startswith(_FROM_OUTSIDE) and (given is None or not given.is_absolute()):
        raise ConfigError(
            f"--workdir: expected an absolute path, as the nodes of {address} see it, got {given}"
        )
    now = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    # Absolute: actors start in folders of their own.
    return (given or Path("runs") / f"{name}__{seed}__{now}").absolute()
