"""How many hosts are enough, and what binds."""

import dataclasses

import pytest

from learner.planning.demand import Demand, Machines
from learner.planning.plan import ANSWERS, Sizing, in_words, size
from learner.planning.prediction import (
    ACTING,
    DEVICES,
    INTERPRETER,
    STEPPING,
    predict,
)
from seedrl.errors import ConfigError
from tests.learner.planning.test_prediction import FREE

# 1,000 messages a second if nobody waits; 1 ms of the interpreter each: one host is busy with them.
DEMAND = Demand(
    environments=100, envs_per_server=1, groups=1, step_seconds=0.1, step_cpu_seconds=0.1
)
BUSY = dataclasses.replace(FREE, learner_message=1e-3, answer=1e-3)
ONE = Machines(devices=1)


def test_as_many_hosts_as_leave_room() -> None:
    # Two would be busy half of the time.
    found = size(BUSY, DEMAND, ONE, headroom=0.8, batch_sequences=64, learning_devices=1)
    assert found.hosts == 2
    assert found.prediction.loads[INTERPRETER] == pytest.approx(0.5, abs=0.02)
    assert found.steps_per_second == pytest.approx(1_000, rel=0.03)
    assert found.env_server_cores == pytest.approx(100, rel=0.03)


def test_the_batch_is_shared_out_evenly() -> None:
    found = size(BUSY, DEMAND, ONE, headroom=0.8, batch_sequences=15, learning_devices=1)
    assert found.hosts == 3


def test_no_number_of_hosts_may_be_enough() -> None:
    with pytest.raises(ConfigError, match="no learner of 1 to 1 hosts"):
        size(BUSY, DEMAND, ONE, headroom=0.8, batch_sequences=1, learning_devices=1)
    found = size(BUSY, DEMAND, ONE, headroom=0.8, batch_sequences=1, learning_devices=1, hosts=1)
    assert found.prediction.loads[INTERPRETER] > 0.9


def test_a_regime_for_one_host_is_given_one_or_refused() -> None:
    def found(demand: Demand, hosts: int = 0) -> Sizing:
        return size(
            BUSY,
            demand,
            ONE,
            headroom=0.8,
            batch_sequences=64,
            learning_devices=1,
            hosts=hosts,
            regime="lock_step",
        )

    with pytest.raises(
        ConfigError, match="--environments: .* learning.regime lock_step is for one"
    ):
        found(DEMAND)
    with pytest.raises(
        ConfigError, match="--hosts: learning.regime lock_step is .* 1, or 0, got 2"
    ):
        found(DEMAND, hosts=2)
    assert found(dataclasses.replace(DEMAND, environments=50)).hosts == 1
    # What would need several hosts, or several devices that act, is no help.
    full = found(DEMAND, hosts=1)
    assert full.binding == INTERPRETER
    assert "hosts" not in in_words(full) and "--envs-per-server" in in_words(full)
    acting = predict(dataclasses.replace(BUSY, act=2e-3, act_message=2e-3), DEMAND, ONE)
    assert "more devices" not in in_words(Sizing(1, acting, "synchronous"))


@pytest.mark.parametrize(
    ("costs", "binding", "relief"),
    [
        (BUSY, INTERPRETER, "--envs-per-server"),
        # 2 ms of a device a step: 20 steps are an update.
        (dataclasses.replace(BUSY, update=0.04), DEVICES, "--accelerator NAME:N"),
        (dataclasses.replace(BUSY, act=2e-3, act_message=2e-3), ACTING, "more devices that act"),
        (dataclasses.replace(FREE, answer=1e-3), STEPPING, "make more steps"),
        (dataclasses.replace(FREE, answer=1.0), ANSWERS, "more groups"),
    ],
)
def test_what_is_most_in_use_binds(costs: object, binding: str, relief: str) -> None:
    learning = dataclasses.replace(DEMAND, steps_per_update=20.0)
    found = Sizing(1, predict(costs, learning, ONE))  # type: ignore[arg-type]
    assert found.binding == binding
    assert relief in in_words(found)


def test_of_several_hosts_what_makes_them_several_binds() -> None:
    # The environments step nearly all the time: that is not why there are two.
    found = size(BUSY, DEMAND, ONE, headroom=0.8, batch_sequences=64, learning_devices=1)
    assert found.prediction.loads[STEPPING] > found.prediction.loads[INTERPRETER]
    assert found.binding == INTERPRETER
