"""Our PPO against a peer's, with equal networks, environments, rollouts, batches and epochs.

CartPole as `cartpole_ppo`, Pong as `pong_ppo` (44 x 44, four frames) without normalizing images:
environment steps a second, of acting alone and of acting and learning, and seconds from process
start to a score of 475 on CartPole. A rate is measured while everything else is frozen, and with a
learning rate so small that all rounds act by one policy.

Theirs differs where its library does: rollouts of CartPole train their last step too, minibatches
are shuffled step by step, Pong is stepped by gymnasium's wrappers around ALE, not by ALE's vector
environment, and evaluation's time is left out, except from the seconds of whole processes.
"""

import dataclasses
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from learner.extras.bench import bounds
from learner.extras.bench.measuring import Pace, Result, apart, interleave
from learner.extras.bench.system import System
from seedrl import config_io
from seedrl.config import Config
from tests.benchmarks.conditions import conditions
from tests.benchmarks.peers import sb3, virtual_environment
from tests.benchmarks.peers.peer_process import PeerProcess

# Theirs may take an hour to learn CartPole beside other work.
_PATIENCE_SECONDS = 3600.0
_CARTPOLE = "cartpole_ppo"
_TARGET = 475.0
# What the environments of each are to their network: see `_task`.
_SHAPES: dict[str, dict[str, int]] = {
    _CARTPOLE: {"image_size": 0, "features": 4, "num_actions": 2},
    # 44 x 44 pixels, of which the Nature network makes 2 x 2 x 64.
    "pong_ppo": {"image_size": 44, "features": 256, "num_actions": 6},
}
# Threads that wait for work in a loop answer an act step sooner, but take the cores from learning,
# of which TorchRL reaches 3,222 steps/s with one thread a process and 985 with one a core.
_LEARNING = {"OMP_NUM_THREADS": "1"}
# Fields of our agent that theirs gets too.
_AGENT_FIELDS = (
    *("epochs", "minibatches", "gamma", "gae_lambda", "clip", "entropy_cost", "value_cost"),
    *("learning_rate", "adam_epsilon", "max_gradient_norm", "reward_scale", "reward_clip"),
)


def run(peer: str, label: str, pace: Pace, venvs: Path) -> Iterator[Result]:
    """Steps a second on CartPole and Pong, then seconds to the target on CartPole.

    Args:
      peer: its list of requirements is `PEER.txt`, its program `PEER_ppo.py`.
      label: its name in the results.
    """
    command = (
        virtual_environment.python(peer, venvs),
        virtual_environment.PROGRAMS / f"{peer}_ppo.py",
    )
    for name in _SHAPES:
        config = config_io.load(name)
        agent = dataclasses.replace(config.agent, normalize_images=False)
        config = bounds.prepared(dataclasses.replace(config, agent=agent))
        yield from apart(config, _rates, name, config, label, command, pace)
    figures = ((sb3.HELD, 1.0), (sb3.FIRST, None), (sb3.STEPS, None), (sb3.WHOLE, None))
    comparisons = [(_CARTPOLE, label, figure, target) for figure, target in figures]
    theirs = {label: partial(_to_target, command)}
    yield from sb3.compare((_CARTPOLE,), theirs, comparisons, pace.rounds)


def _task(name: str, config: Config, mode: str) -> dict[str, Any]:
    """What theirs does, as our configuration has it: the first command of its program."""
    agent, network = config.agent, config.agent.network
    slots, launch = config.serving.training_slots, config.launch
    return {
        **_SHAPES[name],
        **{field: getattr(agent, field) for field in _AGENT_FIELDS},
        "mode": mode,
        "started": time.time(),
        "seed": config.seed,
        "environment": config.environment.id,
        "frame_stack": network.frame_stack,
        "torso_sizes": network.torso_sizes,
        "head_sizes": network.head_sizes,
        "num_envs": slots,
        # Environments that are stepped and answered together.
        "group_size": slots // (launch.env_servers * launch.groups),
        "rollout": agent.window.length,
        "sequences": config.learning.batch_sequences,
    }


def _peer(command: Sequence[str | Path], mode: str) -> PeerProcess:
    environment = {} if mode == "acting" else _LEARNING
    return PeerProcess(command, patience_seconds=_PATIENCE_SECONDS, environment=environment)


def _rates(
    name: str, config: Config, label: str, command: Sequence[str | Path], pace: Pace
) -> Iterator[Result]:
    figures = {"acting": "acting alone", "learning": "acting and learning"}
    with System(config) as system:
        sides = bounds.Sides(system)

        def ours(mode: str) -> float:
            if mode == "acting":
                interval = sides.act(pace.seconds)
            else:
                interval = system.run(pace.seconds, by_updates=True)
            return interval.steps / interval.seconds

        system.run(0.0, by_updates=True)
        for mode, words in figures.items():
            with _peer(command, mode) as process:
                process.prepare(**_task(name, config, mode))
                theirs = partial(process.rate, seconds=pace.seconds)
                measures = {"ours": partial(ours, mode), "theirs": theirs}
                measured = interleave(measures, pace.rounds)
            yield Result(
                name=f"{name}: {words}",
                unit="steps/s",
                limit_name=label,
                ours=measured["ours"],
                limits=measured["theirs"],
                target=1.0,
                conditions=conditions(config, environments=config.serving.training_slots),
            )


def _to_target(command: Sequence[str | Path], seed: int) -> sb3.Learned:
    config = dataclasses.replace(config_io.load(_CARTPOLE), seed=seed)
    started = time.time()
    with _peer(command, "target") as process:
        process.ask(**_task(_CARTPOLE, config, "target"))
        answer = process.ask(
            target=_TARGET,
            episodes=config.evaluation.episodes,
            round_steps=config.evaluation.interval_steps,
            most_steps=config.learning.total_steps,
        )
    found = sb3.learned(answer["lines"], lambda line: float(line["elapsed_seconds"]))
    return found._replace(exit_seconds=time.time() - started)
