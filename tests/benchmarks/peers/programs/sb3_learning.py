"""Stable-Baselines3 on one task of `sb3_tasks.toml`, with rounds of evaluation at fixed steps.

`sb3_learning.py PLAN`: a JSON object with the fields of the task, and with `seed` and `started`,
the Unix time at which this process was started. Prints a JSON object a line for each round of
evaluation, which takes place in environments of its own, and whose time does not count.
"""

import json
import sys
import time
from statistics import fmean
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
# Far from the seeds of training.
_ROUNDS_SEED = 10_000


class Evaluation(BaseCallback):
    """Plays rounds of evaluation, and ends training when a target is confirmed.

    Attributes:
      is_confirmed: True once the target has held over 100 fresh episodes.
      seconds: that evaluation has taken.
    """

    def __init__(self, plan: dict[str, Any]):
        super().__init__()
        self._plan = plan
        self._target = plan["target_return"]
        make = [lambda: gymnasium.make(plan["environment"])] * plan["episodes"]
        self._environments = DummyVecEnv(make)
        self._environments.seed(_ROUNDS_SEED + 1_000 * plan["seed"])
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
        if fmean(returns) >= self._target:
            returns = play(self.model, self._environments, _FRESH_EPISODES)
            self._say(returns, elapsed, is_confirmation=True)
            self.is_confirmed = fmean(returns) >= self._target
        self.seconds += time.time() - start
        return not self.is_confirmed

    def _say(self, returns: list[float], elapsed: float, *, is_confirmation: bool) -> None:
        line = {
            "kind": "evaluation",
            "elapsed_seconds": elapsed,
            "mean_return": fmean(returns),
            "env_steps": self.num_timesteps,
            "is_confirmation": is_confirmation,
        }
        print(json.dumps(line), flush=True)


def play(model: BaseAlgorithm, where: DummyVecEnv, episodes: int) -> list[float]:
    """Returns of that many episodes, with deterministic actions."""
    found, _ = evaluate_policy(
        model, where, episodes, deterministic=True, return_episode_rewards=True, warn=False
    )
    return [float(each) for each in found]


def setting(value: Any) -> Any:
    """What RL Baselines3 Zoo writes as "lin_X" falls linearly from X to 0."""
    if isinstance(value, str) and value.startswith("lin_"):
        return LinearSchedule(float(value.removeprefix("lin_")), 0.0, 1.0)
    return value


def main() -> None:
    plan = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    model = getattr(stable_baselines3, plan["algorithm"])(
        "MlpPolicy",
        make_vec_env(plan["environment"], plan["num_environments"], seed=plan["seed"]),
        seed=plan["seed"],
        device="cpu",
        **{name: setting(value) for name, value in plan["settings"].items()},
    )
    evaluation = Evaluation(plan)
    while model.num_timesteps < plan["most_steps"] and not evaluation.is_confirmed:
        # Schedules that have ended begin again in the middle.
        model.learn(plan["total_steps"], evaluation, reset_num_timesteps=model.num_timesteps == 0)


if __name__ == "__main__":
    main()
