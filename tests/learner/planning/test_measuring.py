"""Costs are told apart: loads that are made of known costs give these back."""

import pytest

from learner.planning.measuring import Load, Loads, Measured, costs_of

# Seconds of the learner's processor, and of the env server's.
_MESSAGE, _ROW, _BYTE, _BATCH, _COLD, _REST = 200e-6, 2e-6, 1e-9, 150e-6, 300e-6, 0.05
_ENV_MESSAGE, _ENV_ROW, _ENV_BYTE, _ENV_COLD, _ENV_REST = 100e-6, 1e-6, 2e-9, 50e-6, 0.01


def made_of(load: Load, per_second: float, per_batch: float, num_bytes: float) -> Measured:
    # 15 ms of each cycle are not long enough to fall asleep.
    share = max(0.0, 1 - 0.004 * per_second)
    learner = _MESSAGE + load.num_envs * _ROW + num_bytes * _BYTE
    learner += (_BATCH + share * _COLD) / per_batch
    env_server = _ENV_MESSAGE + load.num_envs * _ENV_ROW + num_bytes * _ENV_BYTE
    env_server += share * _ENV_COLD
    return Measured(
        messages_per_second=per_second,
        messages_per_batch=per_batch,
        learner_cores=_REST + per_second * learner,
        env_server_cores=_ENV_REST + per_second * env_server,
        act_seconds=400e-6 + 50e-6 * (per_batch - 1),
    )


def test_costs_are_told_apart() -> None:
    loads = Loads()
    found = [
        made_of(loads.alone, 19.0, 1.0, 0.0),
        made_of(loads.slow, 2.0, 1.0, 0.0),
        made_of(loads.steady, 250.0, 1.0, 0.0),
        made_of(loads.wide, 18.0, 1.0, 0.0),
        made_of(loads.heavy, 17.0, 1.0, loads.heavy.message_bytes),
        made_of(loads.crowded, 1_500.0, 3.0, 0.0),
    ]
    costs = costs_of(loads, found, measured="by hand")
    assert costs.learner_message == pytest.approx(_MESSAGE)
    assert costs.learner_row == pytest.approx(_ROW)
    assert costs.learner_byte == pytest.approx(_BYTE)
    assert costs.learner_batch == pytest.approx(_BATCH)
    assert costs.learner_cold == pytest.approx(_COLD)
    assert costs.learner_at_rest == pytest.approx(_REST)
    assert costs.env_message == pytest.approx(_ENV_MESSAGE)
    assert costs.env_row == pytest.approx(_ENV_ROW)
    assert costs.env_byte == pytest.approx(_ENV_BYTE)
    assert costs.env_cold == pytest.approx(_ENV_COLD)
    assert costs.env_at_rest == pytest.approx(_ENV_REST)
    assert costs.answer == pytest.approx(1 / 19 - 0.05)
    assert costs.act_message == pytest.approx(50e-6)
    assert (costs.act, costs.measured) == (400e-6, "by hand")


def test_noise_makes_no_cost_less_than_nothing() -> None:
    loads = Loads()
    found = [made_of(load, 10.0 + 20 * number, 1.0, 0.0) for number, load in enumerate(loads)]
    quiet = [each._replace(learner_cores=0.0, env_server_cores=0.0) for each in found[3:]]
    costs = costs_of(loads, [*found[:3], *quiet], measured="")
    values = [value for name, value in costs.to_json().items() if name != "measured"]
    assert min(values) >= 0


def test_bytes_of_a_message_are_those_of_its_observations() -> None:
    assert Load(num_envs=8, shape=(84, 84), dtype="uint8").message_bytes == 56_448
    assert Load(num_envs=2, shape=(4,)).message_bytes == 32
