"""Stable-Baselines3's DQN on CartPole-v1 until it scores 475.

The hyperparameters are those of RL Baselines3 Zoo for this environment. Evaluation takes place
every 2,000 steps on environments of its own, and its time does not count.

`sb3_dqn.py SEED STARTED`: the second is the Unix time at which this process was started. Prints one
JSON object.
"""

import json
import sys
import time

import gymnasium
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import DummyVecEnv

_TARGET = 475.0
_STEPS_BETWEEN = 2_000
_EPISODES, _CONFIRMING_EPISODES = 20, 100
# What the zoo trains for; exploration ends after a share of it.
_BUDGET_STEPS = 50_000
_MOST_STEPS = 4 * _BUDGET_STEPS


class Evaluation(BaseCallback):
    """Ends training once parameters that reach the target over 20 episodes hold it over 100.

    Attributes:
      first: seconds and steps to the first mean of 475 over 20 episodes, then those to the one that
        held over 100.
    """

    def __init__(self, seed: int, started: float):
        super().__init__()
        self._environments = DummyVecEnv([lambda: gymnasium.make("CartPole-v1")] * _EPISODES)
        self._environments.seed(1_000 + seed)
        self._started = started
        self._evaluating_seconds = 0.0
        self.first: tuple[float, int] | None = None
        self.held: tuple[float, int] | None = None

    def _on_step(self) -> bool:
        if self.num_timesteps % _STEPS_BETWEEN != 0:
            return True
        start = time.time()
        now = (start - self._started - self._evaluating_seconds, self.num_timesteps)
        if self._score(_EPISODES) >= _TARGET:
            self.first = self.first or now
            if self._score(_CONFIRMING_EPISODES) >= _TARGET:
                self.held = now
        self._evaluating_seconds += time.time() - start
        return self.held is None

    def _score(self, episodes: int) -> float:
        mean, _ = evaluate_policy(
            self.model, self._environments, n_eval_episodes=episodes, warn=False
        )
        return float(mean)


def main() -> None:
    seed, started = int(sys.argv[1]), float(sys.argv[2])
    model = DQN(
        "MlpPolicy",
        "CartPole-v1",
        learning_rate=2.3e-3,
        batch_size=64,
        buffer_size=100_000,
        learning_starts=1_000,
        gamma=0.99,
        target_update_interval=10,
        train_freq=256,
        gradient_steps=128,
        exploration_fraction=0.16,
        exploration_final_eps=0.04,
        policy_kwargs={"net_arch": [256, 256]},
        seed=seed,
        device="cpu",
    )
    evaluation = Evaluation(seed, started)
    model.learn(_BUDGET_STEPS, callback=evaluation)
    while evaluation.held is None and model.num_timesteps < _MOST_STEPS:
        # Exploration has ended by then, and stays at its end.
        model.learn(_BUDGET_STEPS, callback=evaluation, reset_num_timesteps=False)
    print(json.dumps({"first": evaluation.first, "held": evaluation.held}))


if __name__ == "__main__":
    main()
