"""Stepping environments for their own sake: counted steps were taken."""

import json
import subprocess
import sys

import numpy as np

from envs_server.bench.stepping import Stepped, Stepper
from envs_server.envs.constant import make_vec
from envs_server.vector import VectorEnvironment, VectorStep, from_gymnasium
from seedrl.spec_json import decode_spec
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec


def ending_every_third_step(num_envs: int, taken: list[np.ndarray]) -> VectorEnvironment:
    """Environment 0 ends its episode with every third step and then needs one to start again."""
    env = make_vec(num_envs, shape=(2,))

    def step(actions: np.ndarray) -> VectorStep:
        taken.append(actions)
        over = np.zeros(num_envs, np.bool_)
        over[0] = len(taken) % 3 == 2
        return VectorStep(np.zeros((num_envs, 2)), np.zeros(num_envs), over, np.zeros_like(over))

    return from_gymnasium(env, lambda seeds: env.reset()[0])._replace(step=step)


def test_rows_that_start_an_episode_are_not_steps() -> None:
    taken: list[np.ndarray] = []
    stepper = Stepper([ending_every_third_step(4, taken)], 4)
    times = iter([0.0, *[0.1] * 8, 1.0])
    # Nine steps of four, of which the third, sixth and ninth start an episode of environment 0.
    stepped = stepper.run(1.0, clock=lambda: next(times))
    assert stepped == Stepped(9 * 4 - 3, 1.0, stepped.cpu_seconds)
    assert len(taken) == 9
    assert set(np.unique(taken)) == set(range(6))


def test_groups_are_stepped_in_turn() -> None:
    first: list[np.ndarray] = []
    second: list[np.ndarray] = []
    groups = [ending_every_third_step(2, first), ending_every_third_step(2, second)]
    times = iter([0.0, 0.5, 1.0])
    assert Stepper(groups, 2).run(1.0, clock=lambda: next(times)).steps == 2 * 2 * 2
    assert len(first) == len(second) == 2


def test_the_process_answers_each_line() -> None:
    command = [sys.executable, "-m", "envs_server.bench.stepping", "--environment", "CartPole-v1"]
    done = subprocess.run(
        [*command, "--num-envs", "3", "--groups", "2"],
        input="0.001\n0.001\n",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    ready, *answers = map(json.loads, done.stdout.splitlines())
    assert decode_spec(ready["spec"]) == EnvSpec(ArraySpec((4,), "float32"), DiscreteSpec(2))
    assert len(answers) == 2
    for answer in answers:
        assert answer["steps"] > 0 and answer["seconds"] >= 0.001
        assert answer["cpu_seconds"] > 0
