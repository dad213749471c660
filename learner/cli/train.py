"""`seedrl train CONFIG`: a learner and its env servers on this machine, supervised."""

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from learner.cli.arguments import parse
from learner.cli.early_learner import EarlyLearner
from learner.cli.learner import LearnerOptions
from learner.launch import env_servers
from learner.launch.supervisor import Supervisor, forward_signals
from seedrl.config import Config
from seedrl.config_checks import check
from seedrl.errors import ConfigError

PROG = "seedrl train"
# Flags of this command alone; the learner does not know them.
_FLEET_FLAGS = ("--env-servers", "--envs-per-server", "--groups")


@dataclass(frozen=True, kw_only=True)
class TrainOptions(LearnerOptions):
    """Options of a run on this machine beside the fields of its configuration.

    Attributes:
      workdir: folder of the run; by default a new one, runs/CONFIG__SEED__UTC-TIME.
      resume: whether to go on from the newest checkpoint in the folder: if there is one (auto),
        not at all (never), or it is an error if there is none (must).
      checkpoint_replay: save the replay with every checkpoint, same as `--checkpoint.replay`.
      bind: address to serve on, same as `--serving.bind`; by default a unix socket of its own.
      env_servers: number of env-server processes; by default `--launch.env-servers`.
      envs_per_server: environments of each; all but the evaluation slots then train; by default as
        `--launch.envs-per-server`.
      groups: groups of environments that an env server steps in turn; by default as
        `--launch.groups`.
    """

    workdir: Path | None = None  # type: ignore[assignment]
    env_servers: int | None = None
    envs_per_server: int | None = None
    groups: int | None = None


def run(argv: Sequence[str]) -> int:
    """Trains until the run is over; returns its exit code."""
    with contextlib.ExitStack() as stack:
        early_learner = stack.enter_context(EarlyLearner())
        options, config = parse(TrainOptions, argv, prog=PROG)
        config, planned = env_servers.plan(
            options.apply(config),
            env_servers=options.env_servers,
            envs_per_server=options.envs_per_server,
            groups=options.groups,
        )
        check(config)
        workdir = options.workdir or _new_workdir(argv[0], config)
        if _chooses_address(argv):
            address = _reachable(config.serving.bind)
        else:
            address = stack.enter_context(env_servers.socket_address())
        commands = env_servers.commands(
            planned, config.environment, address=address, logs=workdir / "logs"
        )
        supervisor = Supervisor(
            commands,
            learner=early_learner.command,
            learner_process=early_learner.process,
            restarts=config.launch.restarts,
        )
        stack.enter_context(forward_signals(supervisor.signal))
        stack.enter_context(supervisor)
        early_learner.begin(_learner_words(argv, config, workdir, address))
        return supervisor.wait()


def _new_workdir(config_name: str, config: Config) -> Path:
    now = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    return Path("runs") / f"{Path(config_name).stem}__{config.seed}__{now}"


def _chooses_address(argv: Sequence[str]) -> bool:
    return any(word.split("=")[0] in ("--bind", "--serving.bind") for word in argv)


def _reachable(bind: str) -> str:
    if bind.endswith(":0"):
        raise ConfigError(
            f"serving.bind: expected a port other than 0, which the env servers know, got {bind!r}"
        )
    return bind


def _learner_words(argv: Sequence[str], config: Config, workdir: Path, address: str) -> list[str]:
    """What follows `python -m learner`."""
    launch = config.launch
    # Of a flag that is given twice the last one holds.
    settled = {
        "--workdir": workdir,
        "--bind": address,
        "--serving.training-slots": config.serving.training_slots,
        "--launch.env-servers": launch.env_servers,
        "--launch.envs-per-server": launch.envs_per_server,
        "--launch.groups": launch.groups,
    }
    flags = [word for name, value in settled.items() for word in (name, str(value))]
    return [*_without_fleet_flags(argv), *flags]


def _without_fleet_flags(argv: Sequence[str]) -> list[str]:
    kept: list[str] = []
    words = iter(argv)
    for word in words:
        name, separator, _ = word.partition("=")
        if name.replace("_", "-") not in _FLEET_FLAGS:
            kept.append(word)
        elif not separator:
            next(words, None)
    return kept
