"""Playing a checkpoint of a run on env servers of this machine, with learning off."""

import contextlib
import dataclasses
import shutil
import signal
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from learner.launch.supervisor import Supervisor
from seedrl import config_io
from seedrl.config import Config
from seedrl.config_io import of_run, require_factories
from seedrl.errors import ConfigError
from seedrl.exit_codes import ExitCode
from seedrl.run_files import LOGS

if TYPE_CHECKING:  # imports jax
    from learner.evaluate import Evaluation


@dataclass(frozen=True, kw_only=True)
class PlayOptions:
    """What is played of a run.

    Attributes:
      workdir: folder of the run.
      episodes: number of episodes to play.
      step: play the checkpoint of that many updates.
      best: play the checkpoint that scored highest in the evaluations of the run.
      seed: of environments and random actions; by default the run's.
      greedy: take greedy actions only; by default the agent explores as when it is evaluated in
        training.
      allow: code that the run may name: folders of Python files, and factories of environments,
        package.module:factory; by default only what is installed, and environments by their id.
    """

    workdir: Annotated[Path, tyro.conf.Positional]
    episodes: int
    step: int | None = None
    best: bool = False
    seed: int | None = None
    greedy: bool = False
    allow: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.episodes < 1:
            raise ConfigError(f"--episodes: expected at least 1, got {self.episodes}")
        if self.seed is not None and self.seed < 0:
            raise ConfigError(f"--seed: expected at least 0, got {self.seed}")
        if self.best and self.step is not None:
            raise ConfigError("--step and --best: expected one of them, got both")


def config_of(options: PlayOptions) -> Config:
    """The configuration of the run that is played, with environments that depend on no others.

    Raises ConfigError if it names code that is not allowed.
    """
    config_io.allow(*options.allow)
    config = of_run(options.workdir)
    require_factories((config.environment.id, *config.environment.wrappers))
    return each_seeded(config)


def each_seeded(config: Config) -> Config:
    """With environments that do not depend on which others share their env server."""
    if config.environment.vectorization != "auto":
        return config
    environment = dataclasses.replace(config.environment, vectorization="seeded")
    return dataclasses.replace(config, environment=environment)


def make_logs(workdir: Path, player: str) -> Path:
    """A new folder `player_…` below the run's logs, for the env servers of one player.

    The run may be training, and others may play it: their env servers have logs of their own.
    Raises ConfigError if it cannot be made.
    """
    parent = workdir / LOGS
    try:
        parent.mkdir(exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=f"{player}_", dir=parent))
    except OSError as error:
        raise ConfigError(
            f"cannot write in {parent} ({error.strerror}): expected a folder for the logs of env "
            "servers; play a copy of the run"
        ) from error


def play(
    supervisor: Supervisor, config: Config, options: PlayOptions, *, logs: Path
) -> "Evaluation | int":
    """The evaluation, or the exit code if the env servers cannot continue (and said why).

    `logs`, the folder of what the env servers write, is removed unless one of them has failed.
    """
    ended: list[int] = []

    def watch() -> None:
        code: int = ExitCode.INTERNAL
        try:
            code = supervisor.wait()
        finally:
            if code != ExitCode.OK:
                ended.append(code)
                # A real signal: it also wakes a main thread that waits for a lock.
                main_thread = threading.main_thread().ident
                assert main_thread is not None
                signal.pthread_kill(main_thread, signal.SIGINT)

    watcher = threading.Thread(target=watch, name="env servers", daemon=True)
    with contextlib.ExitStack() as stack:
        stack.callback(_remove_logs, supervisor, logs)
        stack.enter_context(supervisor)
        stack.callback(watcher.join)
        stack.callback(supervisor.stop)
        watcher.start()
        try:
            from learner.evaluate import evaluate
            from seedrl import checkpoints

            evaluation = evaluate(
                config,
                checkpoints.choose(
                    options.workdir,
                    step=options.step,
                    is_best=options.best,
                    parts=checkpoints.PARAMS,
                ),
                episodes=options.episodes,
                seed=options.seed,
                is_greedy=options.greedy,
            )
        except (Exception, KeyboardInterrupt):
            if not ended:
                raise
        return ended[0] if ended else evaluation


def _remove_logs(supervisor: Supervisor, logs: Path) -> None:
    if not supervisor.has_failed_env_server:
        shutil.rmtree(logs, ignore_errors=True)
