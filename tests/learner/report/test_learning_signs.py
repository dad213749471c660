"""Each sign is given once, with a field to try, and not to a run that learns."""

from typing import Any

import pytest

from learner.report.learning_signs import LearningSigns
from seedrl import config_io
from seedrl.fields import fields_of


def interval(**changes: float) -> dict[str, float]:
    """Of a healthy run."""
    values = {
        "env_steps": 50_000.0,
        "updates": 200.0,
        "episodes/training": 500.0,
        "return/training": 1.0,
        "return/training_min": 0.0,
        "return/training_max": 2.0,
        "length/training": 20.0,
        "gradient_norm": 0.5,
    }
    names = {"low": "return/training_min", "high": "return/training_max", "mean": "return/training"}
    return values | {names.get(name, name): value for name, value in changes.items()}


def given(config: str, *intervals: dict[str, float], number: int = 6, **fields: Any) -> list[str]:
    signs = LearningSigns(fields_of(config_io.load(config)) | fields)
    looks = [signs.look(values) for values in intervals for _ in range(number)]
    found = [item for look in looks for item in look.items()]
    fields = {"no_gradient": "hint: ", "old_parameters": "serving.training_slots (32)"}
    assert all(fields.get(name, "agent.") in text for name, text in found)
    return [name for name, _ in found]


def test_a_run_that_learns_has_no_sign() -> None:
    assert given("default_ppo", interval(entropy=1.0), interval(entropy=0.0, mean=2.0)) == []
    assert given("default_r2d2", interval(q_mean=1.0, return_std=0.5)) == []
    # Replay holds experience of older parameters.
    assert given("default_r2d2", interval(policy_lag_updates=600.0)) == []
    assert given("cartpole_impala", interval(policy_lag_updates=2.0)) == []
    # An episode of one step, cut short, is worth a hundred of them.
    forever = interval(q_mean=50.0, low=0.0, high=1.0, **{"length/training": 1.0})
    assert given("default_apex", forever) == []


@pytest.mark.parametrize(
    ("config", "values", "sign"),
    [
        ("default_ppo", interval(low=-200, high=-200, mean=-200), "no_reward"),
        ("default_r2d2", interval(gradient_norm=0.0), "no_gradient"),
        ("default_ppo", interval(entropy=0.001, mean=1.0), "no_entropy"),
        ("default_r2d2", interval(q_mean=300.0), "values_far"),
        ("default_apex", interval(q_mean=-1e4, return_std=2.0), "values_far"),
        ("default_ppo", interval(value_mean=1e4), "values_far"),
        ("cartpole_impala", interval(policy_lag_updates=8.0), "old_parameters"),
    ],
)
def test_a_sign_is_given_once_after_some_intervals(
    config: str, values: dict[str, float], sign: str
) -> None:
    first = interval(**{"entropy": 1.0} if sign == "no_entropy" else {})
    before = [] if sign == "no_reward" else [first]
    assert given(config, *before, values, number=40) == [sign]
    few = 0 if sign == "old_parameters" else 5
    assert given(config, *before, values, number=few) == []


def test_a_gradient_is_small_by_the_epsilon_of_adam() -> None:
    """As seen on a grid with rewards of about 1: the paper's epsilon hides them."""
    values = interval(gradient_norm=0.07)
    assert given("default_r2d2", values, **{"agent.adam_epsilon": 1e-3}) == ["no_gradient"]
    assert given("default_r2d2", values) == []
    # Not of a run that learns.
    better = values | {"return/training": 90.0, "return/training_max": 100.0}
    assert given("default_r2d2", interval(), better, **{"agent.adam_epsilon": 1e-3}) == []


@pytest.mark.parametrize(
    ("config", "values", "field"),
    [
        ("cartpole_impala", interval(gradient_norm=1e-9), "agent.reward_scale"),
        ("default_r2d2", interval(q_mean=300.0), "agent.target_update_interval"),
        ("default_ppo", interval(value_mean=1e4), ""),
    ],
)
def test_a_field_to_raise_is_a_number_that_the_agent_has(
    config: str, values: dict[str, float], field: str
) -> None:
    """Normalized rewards made IMPALA's gradients of CartPole smaller still."""
    signs = LearningSigns(fields_of(config_io.load(config)))
    (text,) = [line for _ in range(6) for line in signs.look(values).values()]
    assert "normalize" not in text and field in text
    assert ("raise" in text) == bool(field)


@pytest.mark.parametrize("young", ["env_steps", "updates", "episodes/training"])
def test_a_young_run_has_none(young: str) -> None:
    assert given("default_r2d2", interval(gradient_norm=0.0, low=0, high=0) | {young: 0.0}) == []
