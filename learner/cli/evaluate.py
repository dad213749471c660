"""`seedrl evaluate WORKDIR`: plays a checkpoint of a run through the same service."""

import contextlib
import dataclasses
import json
import math
import signal
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from learner.cli.arguments import parse_flags
from learner.launch import env_servers
from learner.launch.supervisor import Supervisor
from seedrl.config import Config
from seedrl.config_checks import check
from seedrl.config_json import from_json
from seedrl.errors import ConfigError
from seedrl.exit_codes import ExitCode
from seedrl.programs import extras

if TYPE_CHECKING:  # imports jax
    from learner.session.offline_evaluation import Evaluation

PROG = "seedrl evaluate"


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """Plays a checkpoint of a run, with learning off; by default the newest.

    Attributes:
      workdir: folder of the run.
      episodes: number of episodes to play.
      step: play the checkpoint of that many updates.
      best: play the checkpoint that scored highest in the evaluations of the run.
      env_servers: number of env-server processes; by default as in the run.
      seed: of environments and random actions; by default the run's. The same seed gives the same
        result, with any number of env servers.
      greedy: take greedy actions only; by default the agent explores as when it is evaluated in
        training.
      json: print one JSON object instead of a line.
    """

    workdir: Annotated[Path, tyro.conf.Positional]
    episodes: int = 100
    step: int | None = None
    best: bool = False
    env_servers: int | None = None
    seed: int | None = None
    greedy: bool = False
    json: bool = False


def run(argv: Sequence[str]) -> int:
    """Evaluates and prints the result; returns the exit code."""
    options = parse_flags(EvaluateOptions, argv, prog=PROG)
    if options.episodes < 1:
        raise ConfigError(f"--episodes: expected at least 1, got {options.episodes}")
    if options.seed is not None and options.seed < 0:
        raise ConfigError(f"--seed: expected at least 0, got {options.seed}")
    if options.best and options.step is not None:
        raise ConfigError("--step and --best: expected one of them, got both")
    extras.require("learner")
    config = _each_seeded(_saved_config(options.workdir))
    with env_servers.socket_address() as address:
        serving = dataclasses.replace(config.serving, bind=address)
        # Whatever the number of env servers, the slots are those of the run.
        launch = dataclasses.replace(config.launch, envs_per_server=0)
        config, planned = env_servers.plan(
            dataclasses.replace(config, serving=serving, launch=launch),
            env_servers=options.env_servers,
        )
        check(config)
        planned = _just_enough(planned, config, options.episodes)
        commands = env_servers.commands(
            planned, config.environment, address=address, logs=options.workdir / "logs"
        )
        supervisor = Supervisor(commands, restarts=config.launch.restarts)
        evaluation = _play(supervisor, config, options)
    if not isinstance(evaluation, tuple):
        return evaluation
    print(_text(evaluation, as_json=options.json))
    return ExitCode.OK


def _saved_config(workdir: Path) -> Config:
    path = workdir / "config.json"
    try:
        return from_json(path.read_text())
    except OSError as error:
        raise ConfigError(
            f"expected the folder of a run with its config.json, got {workdir} ({error.strerror})"
        ) from error


def _each_seeded(config: Config) -> Config:
    """With environments that do not depend on which others share their env server."""
    if config.environment.vectorization != "auto":
        return config
    environment = dataclasses.replace(config.environment, vectorization="seeded")
    return dataclasses.replace(config, environment=environment)


def _just_enough(planned: env_servers.Fleet, config: Config, episodes: int) -> env_servers.Fleet:
    """No more environments than episodes: the others would only knock at the door."""
    needed = min(config.serving.training_slots + config.serving.evaluation_slots, episodes)
    num_servers = min(planned.num_servers, needed)
    num_envs = math.ceil(needed / num_servers)
    return env_servers.Fleet(num_servers, num_envs, min(planned.num_groups, num_envs))


def _play(supervisor: Supervisor, config: Config, options: EvaluateOptions) -> "Evaluation | int":
    """The evaluation, or the exit code if the env servers cannot continue (and said why)."""
    ended: list[int] = []

    def watch() -> None:
        code = supervisor.wait()
        if code != ExitCode.OK:
            ended.append(code)
            # A real signal: it also wakes a main thread that waits for a lock.
            main_thread = threading.main_thread().ident
            assert main_thread is not None
            signal.pthread_kill(main_thread, signal.SIGINT)

    watcher = threading.Thread(target=watch, name="env servers", daemon=True)
    with contextlib.ExitStack() as stack:
        stack.enter_context(supervisor)
        stack.callback(watcher.join)
        stack.callback(supervisor.stop)
        watcher.start()
        try:
            from learner.session.offline_evaluation import evaluate
            from seedrl.storage.chosen import choose

            evaluation = evaluate(
                config,
                choose(options.workdir, step=options.step, is_best=options.best),
                episodes=options.episodes,
                seed=options.seed,
                is_greedy=options.greedy,
            )
        except (Exception, KeyboardInterrupt):
            if not ended:
                raise
        return ended[0] if ended else evaluation


def _text(evaluation: "Evaluation", *, as_json: bool) -> str:
    if as_json:
        return json.dumps(evaluation._asdict())
    return (
        f"return {evaluation.mean:.2f} ± {evaluation.standard_error:.2f} (standard error), "
        f"minimum {evaluation.minimum:g}, maximum {evaluation.maximum:g}, "
        f"{evaluation.episodes} episodes, after {evaluation.updates} updates"
    )
