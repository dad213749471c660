"""docs/examples/check_agent: what its tasks pay is what its targets assume, by exact values."""

import os
import runpy
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

FOLDER = Path(__file__).parents[1] / "docs" / "examples" / "check_agent"
PROGRAM, PROBES = (runpy.run_path(str(FOLDER / f"{name}.py")) for name in ("check", "probes"))
TARGETS, TASKS, Probe = PROGRAM["TARGETS"], PROBES["TASKS"], PROBES["Probe"]

BEST = {"truncation": 0.5, "small_rewards": 0.01, "large_rewards": 100.0}
# The choice of each state that is best, or None for any.
POLICY = {
    "one_step": [3],
    "zero_observation": [3],
    "two_steps": [1, 0, 0],
    "small_rewards": [1, 0, 0],
    "large_rewards": [1, 0, 0],
    "delayed_reward": [3] * 21,
    "sparse_reward": [0, 1, 1, 0, 1, 0],
    "action_mask": [low for low in range(10) for _ in range(low + 1, 10)],
    "truncation": [1, 0],
    "memory": [0] * 5 + [1] * 5,
    "discrete_observation": [0, 1, 1, 0, 1, 0],
    "one_hot_bytes": [0, 1, 1, 0, 1, 0],
    "float_picture": [0, 1, 1, 0],
}


def mean_return(env: Any, policy: list[int], *, continuous: bool) -> float:
    env.reset(seed=1)
    returns = []
    for _ in range(40):
        env.reset()
        total, ended = 0.0, False
        while not ended:
            assert env._state is not None
            action = policy[env._state]
            number = len(env._task.rewards[0])
            taken = np.float32([(2 * action + 1) / number - 1]) if continuous else action
            _, reward, terminated, truncated, _ = env.step(taken)
            total, ended = total + reward, terminated or truncated
        returns.append(total)
    return float(np.mean(returns))


@pytest.mark.parametrize("continuous", [False, True])
@pytest.mark.parametrize("name", TASKS)
def test_the_best_policy_is_above_the_threshold_and_the_others_below(
    name: str, continuous: bool
) -> None:
    env = Probe(name=name, continuous=continuous)
    best = mean_return(env, POLICY[name], continuous=continuous)
    assert best == pytest.approx(BEST.get(name, 1.0))
    assert best > TARGETS[name]
    opposite = [0 if action else len(env._task.rewards[0]) - 1 for action in POLICY[name]]
    assert mean_return(env, opposite, continuous=continuous) < 0.7 * TARGETS[name]


def test_nothing_but_the_mask_tells_which_actions_are_legal() -> None:
    env = Probe(name="action_mask")
    # The policy that is best without it.
    assert mean_return(env, [0] * 45, continuous=False) < 0.5
    _, info = env.reset(seed=0)
    assert info["action_mask"].sum() == 2


def test_who_does_not_bootstrap_at_a_truncation_never_invests() -> None:
    assert mean_return(Probe(name="truncation"), [0, 0], continuous=False) == pytest.approx(0.3)
    assert TARGETS["truncation"] > 0.3


@pytest.mark.parametrize("continuous", [False, True])
@pytest.mark.parametrize("name", TASKS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_each_is_an_environment_as_gymnasium_expects(name: str, continuous: bool) -> None:
    env: gymnasium.Env = Probe(name=name, continuous=continuous)
    # But one, whose episodes go on where the one before was cut, whatever the seed.
    if name != "truncation":
        check_env(env, skip_render_check=True)
    assert set(TASKS) == set(TARGETS)


@pytest.mark.parametrize(
    ("discrete", "continuous", "code"),
    [("passed", "no Box", 0), ("no agent", "no agent", 1), ("passed", "failed", 1)],
)
def test_the_exit_code_is_1_if_a_task_fails_or_is_passed_with_neither_kind_of_action(
    discrete: str, continuous: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdicts = iter([discrete, continuous])
    main = PROGRAM["main"]
    monkeypatch.setitem(main.__globals__, "check", lambda *_, **__: (next(verdicts), None))
    assert main("default_apex", "one_step") == code


@pytest.mark.gate
@pytest.mark.parametrize(("task", "rate"), [("one_step", 5e-4), ("sparse_reward", 1e-12)])
def test_an_agent_passes_that_learns(
    task: str, rate: float, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(FOLDER)
    monkeypatch.syspath_prepend(os.getcwd())  # as of a script in that directory
    # A small network, few environments and small batches: half of the processor time.
    small: dict[str, Any] = {"learning_rate": rate}
    small["network"] = {"torso_sizes": (32,), "head_sizes": (32,)}
    code = PROGRAM["main"]("default_apex", task, env_servers=1, agent=small)
    discrete, continuous = capfd.readouterr().out.splitlines()
    assert code == (rate < 1e-6)
    assert discrete.startswith(f"{task}, discrete: {'failed' if code else 'passed'}")
    assert "Discrete actions" in continuous  # an agent that cannot take a task has not failed
