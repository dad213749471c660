"""Stable-Baselines3 on one task of `sb3_tasks.toml`, with rounds of evaluation at fixed steps.

`sb3_learning.py PLAN`: a JSON object with the fields of the task, and with `seed` and `started`,
the Unix time at which this process was started. Prints a JSON object a line: one that says what
runs here, one for each round of evaluation, one for the training, and one for 100 fresh episodes of
the last parameters. Evaluation takes place in environments of its own, and its time does not count.
"""

import json
import sys
import time
from importlib.metadata import version
from statistics import fmean, pstdev
from typing import Any

import gymnasium
import stable_baselines3
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.utils import LinearSchedule
from stable_baselines3.common.vec_env import DummyVecEnv

_FRESH_EPISODES = 100
# Far from the seeds of training and from each other.
_ROUNDS_SEED, _FRESH_SEED = 10_000, 1_000_000
_PACKAGES = ("stable-baselines3", "torch", "gymnasium", "numpy", "mujoco", "box2d")


class Evaluation(BaseCallback):
    """Plays rounds of evaluation, and ends training when a target is confirmed.

    Attributes:
      is_confirmed: whether the target, if there is one, held over 100 fresh episodes.
      seconds: that evaluation has taken.
    """

    def __init__(self, plan: dict[str, Any]):
        super().__init__()
        self._plan = plan
        self._target = plan.get("target_return")
        self._environments = environments(plan, plan["episodes"], _ROUNDS_SEED)
        self._next_steps = 0
        self.is_confirmed = False
        self.seconds = 0.0

    @property
    def training_seconds(self) -> float:
        """Since the start of the process, without evaluation."""
        return time.time() - self._plan["started"] - self.seconds

    def _on_training_start(self) -> None:
        self._on_step()

    def _on_step(self) -> bool:
        if self.num_timesteps < self._next_steps or self.is_confirmed:
            return not self.is_confirmed
        self._next_steps = self.num_timesteps + self._plan["round_steps"]
        start, elapsed = time.time(), self.training_seconds
        returns = play(self.model, self._environments, self._plan["episodes"])
        self._say(returns, elapsed, is_confirmation=False)
        if self._target is not None and fmean(returns) >= self._target:
            returns = play(self.model, self._environments, _FRESH_EPISODES)
            self._say(returns, elapsed, is_confirmation=True)
            self.is_confirmed = fmean(returns) >= self._target
        self.seconds += time.time() - start
        return not self.is_confirmed

    def _say(self, returns: list[float], elapsed: float, *, is_confirmation: bool) -> None:
        say(
            "evaluation",
            elapsed_seconds=elapsed,
            mean_return=fmean(returns),
            standard_deviation=pstdev(returns),
            episodes=len(returns),
            updates=updates(self.model),
            env_steps=self.num_timesteps,
            is_confirmation=is_confirmation,
        )


def environments(plan: dict[str, Any], number: int, first_seed: int) -> DummyVecEnv:
    """For evaluation: others than any other seed's."""
    found = DummyVecEnv([lambda: gymnasium.make(plan["environment"])] * number)
    found.seed(first_seed + 1_000 * plan["seed"])
    return found


def play(model: BaseAlgorithm, where: DummyVecEnv, episodes: int) -> list[float]:
    """Returns of that many episodes, with deterministic actions."""
    found, _ = evaluate_policy(
        model, where, episodes, deterministic=True, return_episode_rewards=True, warn=False
    )
    return [float(each) for each in found]


def say(kind: str, **fields: Any) -> None:
    """A line, with the time."""
    print(json.dumps({"time_seconds": time.time(), "kind": kind, **fields}), flush=True)


def updates(model: BaseAlgorithm) -> int:
    """As the model counts them: gradient steps, of PPO epochs."""
    return int(getattr(model, "_n_updates", 0))


def setting(value: Any) -> Any:
    """What RL Baselines3 Zoo writes as "lin_X" falls linearly from X to 0."""
    if isinstance(value, str) and value.startswith("lin_"):
        return LinearSchedule(float(value.removeprefix("lin_")), 0.0, 1.0)
    return value


def main() -> None:
    plan = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    say("started", versions={name: version(name) for name in _PACKAGES}, threads=1)
    model = getattr(stable_baselines3, plan["algorithm"])(
        "MlpPolicy",
        make_vec_env(plan["environment"], plan["num_environments"], seed=plan["seed"]),
        seed=plan["seed"],
        device="cpu",
        **{name: setting(value) for name, value in plan["settings"].items()},
    )
    evaluation = Evaluation(plan)
    most_steps = plan.get("most_steps", plan["total_steps"])
    while model.num_timesteps < most_steps and not evaluation.is_confirmed:
        # Schedules that have ended begin again in the middle.
        model.learn(plan["total_steps"], evaluation, reset_num_timesteps=model.num_timesteps == 0)
    seconds = evaluation.training_seconds
    say(
        "metrics",
        elapsed_seconds=seconds,
        env_steps=model.num_timesteps,
        env_steps_per_second=model.num_timesteps / seconds,
        updates=updates(model),
        evaluation_seconds=evaluation.seconds,
        # With evaluation, whose time as such the load of the machine stretches.
        cpu_seconds=time.process_time(),
    )
    fresh = play(model, environments(plan, 20, _FRESH_SEED), _FRESH_EPISODES)
    say("final", returns=fresh, updates=updates(model))


if __name__ == "__main__":
    main()
