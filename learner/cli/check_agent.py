"""`seedrl check-agent CONFIG`: trains an agent on tiny tasks, each of which one mistake fails."""

import json
import math
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from learner.cli.arguments import parse, require_at_least
from learner.processes.tuning import require_jax
from seedrl.config import Config, EnvironmentConfig
from seedrl.errors import ConfigError, UserError
from seedrl.exit_codes import ExitCode
from seedrl.fields import with_fields
from seedrl.replay.prioritized import ReplayConfig
from seedrl.run import RunError, start
from seedrl.specs import ArraySpec, BoxSpec, DiscreteSpec, EnvSpec

PROG = "seedrl check-agent"
_FACTORY = "envs_server.envs.probes:make"
# Mean return to reach, by the name of a task: nine tenths of the best, or above any policy that has
# the mistake the task is for.
PROBES = {
    "one_step": 0.9,
    "zero_observation": 0.9,
    "two_steps": 0.9,
    "delayed_reward": 0.9,
    "sparse_reward": 0.9,
    "action_mask": 0.9,
    "truncation": 0.45,
    "memory": 0.9,
    "small_rewards": 0.009,
    "large_rewards": 90.0,
    "discrete_observation": 0.9,
    "one_hot_bytes": 0.9,
    "float_picture": 0.9,
}
# A task is tiny: its replay too, so that learning starts within seconds.
_CAPACITY_STEPS, _MIN_STEPS = 20_000, 1_000
# Two of each evaluation slot: those of `truncation` pay 0 and 1 in turn.
_EPISODES, _SLOTS = 20, 10
# Of a task that an agent cannot learn no more than its seconds are spent.
_STEPS = 10**8


@dataclass(frozen=True, kw_only=True)
class CheckAgentOptions:
    """Check your own agent on tiny tasks.

    Trains the agent of CONFIG on each task of envs_server.envs.probes and prints passed or failed,
    with the best mean return over 20 episodes. A task that does not fit the agent is skipped.
    Exit code 3 if a task failed.

    Example: seedrl check-agent cartpole_ppo --probes one_step two_steps --seconds 20

    Attributes:
      probes: names of tasks.
      seconds: time limit of each task, including the start of its processes.
      allow: code that CONFIG may name, as for `seedrl train`.
    """

    probes: tuple[str, ...] = tuple(PROBES)
    seconds: int = 60
    allow: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        require_at_least(self, seconds=1)
        for name in self.probes:
            if name not in PROBES:
                raise ConfigError(f"--probes: expected some of {', '.join(PROBES)}, got {name}")


def run(argv: Sequence[str]) -> int:
    """Prints a line for each probe; returns the exit code."""
    options, config = parse(CheckAgentOptions, argv, prog=PROG, builds=False)  # other ones
    require_jax(starts=False)
    has_failed = False
    for continuous in (False, True):
        kind = "continuous" if continuous else "discrete"
        for name in options.probes:
            verdict, text = "skipped", misfit(config, name, continuous=continuous)
            if not text:
                verdict, text = _probe(config, name, options, continuous=continuous)
            print(f"{name:<21}{kind:<12}{verdict:<8}{text}", flush=True)
            has_failed |= verdict == "failed"
    return ExitCode.FAULTS if has_failed else ExitCode.OK


def _probe(
    config: Config, name: str, options: CheckAgentOptions, *, continuous: bool
) -> tuple[str, str]:
    # "passed" or "failed", and how it went.
    wanted, began = PROBES[name], time.monotonic()
    planned = tiny(config, name, continuous=continuous, seconds=options.seconds)
    best = -math.inf
    # A run of its own for each task: what one has learned must not help with the next.
    with tempfile.TemporaryDirectory(prefix="seedrl-probe-") as folder:
        training = start(planned, Path(folder) / name, {})
        try:
            code = training.wait()
        except RunError as error:
            return "failed", str(error)
        rounds = [line for line in training.metrics if line["kind"] == "evaluation"]
        best = max((line["mean_return"] for line in rounds), default=best)
    seconds = time.monotonic() - began
    verdict = "passed" if code == ExitCode.OK else "failed"
    return verdict, f"got {best:.3g}, wanted {wanted:g}, in {seconds:.0f} s"


def tiny(config: Config, name: str, *, continuous: bool, seconds: float) -> Config:
    """`config` for a probe: its agent, schedule and batches, but a small replay and a target."""
    arguments = json.dumps({"name": name, "continuous": continuous})
    changes: dict[str, Any] = {
        "environment": EnvironmentConfig(id=_FACTORY, arguments=arguments),
        "serving.evaluation_slots": _SLOTS,
        "learning.total_steps": _STEPS,
        "learning.max_seconds": float(seconds),
        "evaluation.interval_steps": 1_000,  # often, so that a task ends soon after it is learned
        "evaluation.interval_seconds": 1.0,
        "evaluation.episodes": _EPISODES,
        "evaluation.confirm_episodes": _EPISODES,  # by luck a policy passes once, not twice
        "evaluation.target_return": PROBES[name],
        "logging.learning_curve": False,
        "logging.wandb": None,
    }
    replay, window = config.replay, config.agent.window
    if isinstance(replay, ReplayConfig):
        page = replay.steps_of_page(window)
        least = config.serving.training_slots * window.pages_per_sequence(page) * page
        capacity = max(2 * least, min(replay.capacity_steps, _CAPACITY_STEPS))
        changes["replay.capacity_steps"] = capacity
        changes["replay.min_steps"] = max(least, min(replay.min_steps, _MIN_STEPS))
    return with_fields(config, changes)


def misfit(config: Config, name: str, *, continuous: bool) -> str:
    """Why the agent cannot take the task, in words; empty if it can."""
    network = getattr(config.agent, "network", None)
    if name == "memory" and getattr(network, "core", "") == "none":
        return "agent.network.core: none remembers nothing"
    if name == "action_mask" and continuous:
        return "only discrete actions have a mask"
    action = BoxSpec((1,), (-1.0,), (1.0,)) if continuous else DiscreteSpec(2)
    try:
        config.agent.build(EnvSpec(ArraySpec((1,), "float32"), action))
    except UserError as error:
        return str(error)
    return ""
