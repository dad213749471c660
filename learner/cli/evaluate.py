"""`seedrl evaluate WORKDIR`: plays a checkpoint of a run through the same service."""

import json
import math
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from learner.cli.arguments import require_at_least, require_file
from learner.processes import env_servers
from learner.processes.tuning import require_jax
from learner.report.json_lines import plain
from seedrl import config_io
from seedrl.config import MOST_EPISODE_STEPS, Actions, Config, check
from seedrl.config_io import require_factories
from seedrl.errors import ConfigError
from seedrl.exit_codes import ExitCode
from seedrl.fields import with_fields
from seedrl.hints import require_extra
from seedrl.programs.command_line import read
from seedrl.programs.flags import RUN
from seedrl.run_files import CONFIG, EVALUATION_LOGS, FINAL_SCORE, make_folder

if TYPE_CHECKING:  # imports jax
    from learner.evaluate import Evaluation

PROG = "seedrl evaluate"


@dataclass(frozen=True, kw_only=True)
class PlayOptions:
    """Options of the commands that play a run.

    Attributes:
      workdir: directory of the run.
      episodes: number of episodes to play.
      update: play the checkpoint of this update; by default the newest.
      best: play the checkpoint with the highest score in the run's evaluations.
      seed: seed of environments and random actions; by default the run's.
      deterministic: always take the most likely or highest-valued action.
      stochastic: explore as the training slots do on average. By default actions are chosen as in
        the run's evaluations (`evaluation.actions`).
      max_episode_steps: cut an episode short after this many steps.
      allow: code that the run may name: directories of Python files, and environment factories
        (package.module:factory); by default only installed code and registered gymnasium ids.
    """

    workdir: Annotated[Path, RUN]
    episodes: int
    update: int | None = None
    best: bool = False
    seed: int | None = None
    deterministic: bool = False
    stochastic: bool = False
    max_episode_steps: int = MOST_EPISODE_STEPS
    allow: tuple[str, ...] = ()

    @property
    def actions(self) -> Actions | None:
        """None without either flag."""
        if self.deterministic or self.stochastic:
            return "deterministic" if self.deterministic else "stochastic"
        return None

    def __post_init__(self) -> None:
        require_at_least(self, episodes=1, seed=0, max_episode_steps=1)
        if self.seed is not None and self.seed >= 2**31:
            raise ConfigError(f"--seed: expected 0 to {2**31 - 1}, got {self.seed}")
        if self.deterministic and self.stochastic:
            raise ConfigError("--deterministic and --stochastic: expected one of them, got both")
        if self.best and self.update is not None:
            raise ConfigError("--update and --best: expected one of them, got both")


def config_of(options: PlayOptions) -> Config:
    """The configuration of the run that is played. Raises ConfigError for code not allowed."""
    config_io.allow(*options.allow)
    config = config_io.load(options.workdir / CONFIG)
    require_factories((config.environment.id, *config.environment.wrappers))
    if config.environment.vectorization != "auto":
        return config
    # Then an environment does not depend on which others share its env server.
    return with_fields(config, {"environment.vectorization": "seeded"})


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(PlayOptions):
    """Play a checkpoint of a run, with learning off.

    Example: seedrl evaluate runs/pong --best --episodes 50

    Attributes:
      seed: seed of environments and random actions; by default the run's. The same seed gives the
        same result with any number of env servers, unless an env server is lost, which is reported.
      env_servers: number of env-server processes; by default as in the run.
      json: print one JSON object instead of text.
      save: store the result in the run as its final score, for `seedrl compare`.
    """

    episodes: int = 100
    env_servers: int | None = None
    json: bool = False
    save: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.save and (self.best or self.update is not None):
            raise ConfigError(
                "--save: expected the newest checkpoint, whose score is the run's final one, got "
                f"{'--best' if self.best else '--update'}"
            )


def run(argv: Sequence[str]) -> int:
    options = read(EvaluateOptions, argv, prog=PROG)
    require_extra("learner")
    config = config_of(options)
    if options.save:
        require_file("--save", options.workdir / FINAL_SCORE, force=True)
    require_jax()
    with env_servers.socket_address() as address:
        # Whatever the number of env servers, the slots are those of the run.
        changes = {"launch.envs_per_server": 0}
        if options.env_servers is not None:
            changes["launch.env_servers"] = options.env_servers
        config = env_servers.on_private_socket(with_fields(config, changes), address)
        check(config)
        planned = _just_enough(env_servers.plan(config), config, options.episodes)
        words = env_servers.command(planned, config, logs=logs_of(options.workdir))
        evaluation = _play(words, config, options)
    print(_text(evaluation, as_json=options.json))  # first: a full disk does not lose it
    if evaluation.cut:  # on stderr, because the result may be read by a program
        print(f"{PROG}: {_cut_text(evaluation, options)}", file=sys.stderr)
    if options.save:
        from learner.checkpoints.run_records import FinalScore, write_final_score  # imports numpy

        mean, episodes = evaluation.mean, evaluation.episodes
        played = FinalScore(mean, episodes, evaluation.step, evaluation.exploration)
        write_final_score(options.workdir, played)
    return ExitCode.OK


def logs_of(workdir: Path) -> Path:
    """The folder for logs of env servers: in the run, or a temporary one if it is read-only."""
    logs = workdir / EVALUATION_LOGS  # beside those of training, which may be under way
    try:
        make_folder(logs)
    except OSError as error:
        logs = Path(tempfile.mkdtemp(prefix="seedrl-evaluation-"))
        where = f"cannot write in {workdir} ({error.strerror})"
        print(f"{PROG}: {where}: logs of env servers are in {logs}", file=sys.stderr)
    return logs


def _play(words: Sequence[str], config: Config, options: EvaluateOptions) -> "Evaluation":
    # First, so that they import and build while this process imports jax.
    with env_servers.EnvServers(words) as started:
        from learner.evaluate import evaluate

        return evaluate(
            config,
            options.workdir,
            update=options.update,
            is_best=options.best,
            episodes=options.episodes,
            seed=options.seed,
            actions=options.actions,
            max_episode_steps=options.max_episode_steps,
            raise_failure=started.raise_failure,
        )


def _just_enough(planned: env_servers.Fleet, config: Config, episodes: int) -> env_servers.Fleet:
    """No more environments than episodes: the others would only knock at the door."""
    needed = min(config.serving.training_slots + config.serving.evaluation_slots, episodes)
    num_servers = min(planned.num_servers, needed)
    # At least as many as slots, or the lock step never starts.
    num_envs = math.ceil(needed / num_servers)
    return planned._replace(num_servers=num_servers, num_envs=num_envs)


def _text(evaluation: "Evaluation", *, as_json: bool) -> str:
    if as_json:
        return json.dumps(plain(evaluation._asdict()), allow_nan=False)
    again = ""
    if slots := evaluation.slots_leased_again:
        again = (
            f"; {slots} slots were leased again (an env server was lost, or an environment was "
            "disabled): the same seed may give another result"
        )
    return (
        f"return {evaluation.mean:.2f} ± {evaluation.standard_error:.2f} (standard error), "
        f"minimum {evaluation.minimum:g}, maximum {evaluation.maximum:g}, "
        f"length {evaluation.mean_length:g}, "
        + "".join(f"{name} {value:g}, " for name, value in evaluation.metrics.items())
        + f"{evaluation.episodes} episodes, after {evaluation.updates} updates{again}"
    )


def _cut_text(evaluation: "Evaluation", options: EvaluateOptions) -> str:
    steps, missing = options.max_episode_steps, options.episodes - evaluation.episodes
    text = f"{evaluation.cut} episodes were cut short after {steps:,} steps (--max-episode-steps)"
    # An environment that goes on with the one that was cut short cannot start another.
    return f"{text}; {missing} were not played" if missing > 0 else text
