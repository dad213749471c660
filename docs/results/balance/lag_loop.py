"""The experiment with old parameters without env servers: all seeds and corrections at once.

    python docs/results/balance/lag_loop.py CartPole-v1 --lag 64 --updates 300

Acting, loss and optimizer are those of the agent in lag.py; steps are cut into sequences, and
parameters held back, as `seedrl train` does by the synchronous schedule. One line of JSON for each
correction, with the mean return of each seed's last parameters, by their likeliest actions
(`greedy`) and by drawn ones (`drawn`), and the 95 % interval of their mean (percentile bootstrap).
"""

import argparse
import dataclasses
import json
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import lag
import numpy as np
from scipy.stats import bootstrap

from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec
from seedrl.types import Sequence, StepType, StoredStep, TimeStep, Tree

SLOTS = 8  # of each run; each gives one sequence to each update


class Environments:
    """`num` environments in this process, each with its episodes' returns."""

    def __init__(self, name: str, num: int, seed: int) -> None:
        self._made = [gymnasium.make(name, disable_env_checker=True) for _ in range(num)]
        first = [made.reset(seed=seed + index)[0] for index, made in enumerate(self._made)]
        self._is_last, self._sums = np.zeros(num, bool), np.zeros(num)
        self.returns: list[list[float]] = [[] for _ in range(num)]
        self.now = TimeStep(
            np.full(num, StepType.FIRST, np.uint8),
            np.zeros(num, np.float32),
            np.ones(num, np.float32),
            np.stack(first).astype(np.float32),
        )

    def step(self, actions: np.ndarray) -> None:
        num = len(self._made)
        types, rewards = np.full(num, StepType.MID, np.uint8), np.zeros(num, np.float32)
        discounts, observations = np.ones(num, np.float32), self.now.observation.copy()
        for index, made in enumerate(self._made):
            if self._is_last[index]:
                observations[index], _ = made.reset()
                types[index], self._is_last[index] = StepType.FIRST, False
                continue
            seen, reward, is_terminated, is_truncated, _ = made.step(int(actions[index]))
            observations[index], rewards[index] = seen, reward
            discounts[index] = not is_terminated
            self._sums[index] += reward
            if is_terminated or is_truncated:
                types[index], self._is_last[index] = StepType.LAST, True
                self.returns[index].append(float(self._sums[index]))
                self._sums[index] = 0.0
        self.now = TimeStep(types, rewards, discounts, observations)


def train(options: argparse.Namespace) -> None:
    made = gymnasium.make(options.environment)
    spec = EnvSpec(
        ArraySpec(made.observation_space.shape, "float32"), DiscreteSpec(int(made.action_space.n))
    )
    config = lag.config().agent
    config = dataclasses.replace(
        config,
        gamma=options.gamma or config.gamma,
        learning_rate=options.learning_rate or config.learning_rate,
        entropy_cost=options.entropy_cost or config.entropy_cost,
    )
    agent = config.build(spec)
    # One run for each correction and seed: all are the rows of one computation.
    corrections = np.repeat(
        [lag.CORRECTIONS[each] for each in options.corrections], options.seeds, 0
    )
    runs, length = len(corrections), agent.window.length
    seeds = jnp.tile(
        jax.random.split(jax.random.key(options.first_seed), options.seeds),
        len(options.corrections),
    )
    state = jax.jit(jax.vmap(lambda key: agent.init_state(agent.init(key))))(seeds)

    def rows(leaf: Any) -> Any:
        return leaf.reshape(runs, -1, *leaf.shape[1:])

    @jax.jit
    def act(params: Tree, timestep: TimeStep, exploration: float, key: Any) -> tuple[Any, Any]:
        def one(params: Tree, timestep: TimeStep, key: Any) -> Any:
            num = timestep.reward.shape[0]
            carry = agent.initial_carry(num)
            output = agent.act(params, carry, timestep, jnp.full(num, exploration), key)
            return output.action, output.extras

        return jax.vmap(one)(params, jax.tree.map(rows, timestep), jax.random.split(key, runs))

    @jax.jit
    def update(state: Any, steps: StoredStep, corrections: Any) -> Any:
        def one(state: Any, steps: StoredStep, correction: Any) -> Any:
            chosen = lag.with_correction(agent, *correction)
            sequence = Sequence(steps, agent.initial_carry(SLOTS))
            key = jax.random.key(0)  # nothing is drawn
            state, output = chosen.update(state, sequence, jnp.ones(SLOTS), key, lambda tree: tree)
            return state._replace(updates=state.updates + 1), output.metrics

        return jax.vmap(one)(state, steps, corrections)

    environments = Environments(options.environment, runs * SLOTS, 1000 * options.first_seed)
    held, key = [state.params], jax.random.key(options.first_seed)
    noted: list[Any] = []
    for number in range(options.updates):
        acted = []
        for _ in range(length):
            key, own = jax.random.split(key)
            action, extras = jax.device_get(act(held[0], environments.now, 1.0, own))
            acted.append((jax.tree.map(rows, environments.now), action, extras))
            environments.step(action.reshape(-1))
        timestep, action, extras = jax.tree.map(lambda *leaves: np.stack(leaves, 1), *acted)
        steps = StoredStep(timestep, action, np.zeros_like(action), extras)
        state, metrics = update(state, steps, corrections)
        held = [*held, state.params][-options.lag - 1 :]
        noted.append(jax.device_get(metrics))
        if (number + 1) % max(1, options.updates // options.reports) == 0:
            scores = {
                name: evaluated(options, act, state.params, runs, exploration)
                for name, exploration in (("greedy", 0.0), ("drawn", 1.0))
            }
            _report(options, number + 1, scores, noted)
            noted = []


def evaluated(
    options: argparse.Namespace, act: Any, params: Tree, runs: int, exploration: float
) -> np.ndarray:
    """Mean returns `[runs]` of one episode in each of the environments."""
    environments = Environments(options.environment, runs * options.episodes, 10**6)
    key = jax.random.key(options.first_seed)
    while not all(environments.returns):
        key, own = jax.random.split(key)
        action, _ = jax.device_get(act(params, environments.now, exploration, own))
        environments.step(action.reshape(-1))
    first = np.array([returns[0] for returns in environments.returns])
    return first.reshape(runs, -1).mean(1)


def _report(
    options: argparse.Namespace, updates: int, scores: dict[str, np.ndarray], noted: Any
) -> None:
    names = ("value_mean", "entropy", "ratio_low_fraction")
    means = {name: np.mean([each[name] for each in noted], 0) for name in names}
    for index, correction in enumerate(options.corrections):
        own = slice(index * options.seeds, (index + 1) * options.seeds)
        line: dict[str, Any] = {
            "environment": options.environment,
            "lag_updates": options.lag,
            "correction": correction,
            "learning_rate": float(options.learning_rate or lag.config().agent.learning_rate),
            "entropy_cost": float(options.entropy_cost or lag.config().agent.entropy_cost),
            "gamma": float(options.gamma or lag.config().agent.gamma),
            "updates": updates,
            **{name: round(float(value[own].mean()), 3) for name, value in means.items()},
        }
        for name, all_runs in scores.items():
            found = all_runs[own]
            interval = bootstrap((found,), np.mean, method="percentile", rng=0).confidence_interval
            line[name] = {
                "mean": round(float(found.mean()), 1),
                "interval_95": [round(float(end), 1) for end in interval],
                "scores": [round(float(score), 1) for score in found],
            }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("environment")
    parser.add_argument("--lag", type=int, default=64, help="updates")
    parser.add_argument("--updates", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--corrections", nargs="+", default=list(lag.CORRECTIONS))
    parser.add_argument("--episodes", type=int, default=20, help="of each score")
    parser.add_argument("--reports", type=int, default=1, help="evaluations, evenly spaced")
    parser.add_argument("--gamma", type=float)
    parser.add_argument("--learning-rate", type=float)
    parser.add_argument("--entropy-cost", type=float)
    train(parser.parse_args())
