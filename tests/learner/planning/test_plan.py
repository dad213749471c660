"""How many hosts are enough, and what binds."""

import dataclasses

import pytest

from learner.planning.demand import Demand, Machines
from learner.planning.plan import ANSWERS, Sizing, in_words, size
from learner.planning.prediction import ACTING, DEVICES, INTERPRETER, STEPPING, predict
from seedrl.errors import ConfigError
from tests.learner.planning.test_prediction import FREE

# 1,000 messages a second if nobody waits; 1 ms of the interpreter each: one host is busy with them.
DEMAND = Demand(
    environments=100, envs_per_server=1, groups=1, step_seconds=0.1, step_cpu_seconds=0.1
)
BUSY = dataclasses.replace(FREE, learner_message=1e-3, answer=1e-3)
ONE = Machines(devices=1)


def one_device(hosts: int) -> Machines:
    return ONE


def test_as_many_hosts_as_leave_room() -> None:
    # Two would be busy half of the time.
    found = size(BUSY, DEMAND, one_device, headroom=0.8, batch_sequences=64)
    assert found.hosts == 2
    assert found.prediction.loads[INTERPRETER] == pytest.approx(0.5, abs=0.02)
    assert found.steps_per_second == pytest.approx(1_000, rel=0.03)
    assert found.env_server_cores == pytest.approx(100, rel=0.03)


def test_the_batch_is_shared_out_evenly() -> None:
    found = size(BUSY, DEMAND, one_device, headroom=0.8, batch_sequences=15)
    assert found.hosts == 3


def test_no_number_of_hosts_may_be_enough() -> None:
    with pytest.raises(ConfigError, match="no learner of 1 to 1 hosts"):
        size(BUSY, DEMAND, one_device, headroom=0.8, batch_sequences=1)
    found = size(BUSY, DEMAND, one_device, headroom=0.8, batch_sequences=1, hosts=1)
    assert found.prediction.loads[INTERPRETER] > 0.9


def test_a_regime_for_one_host_is_given_one_or_refused() -> None:
    def found(demand: Demand, hosts: int = 0) -> Sizing:
        return size(
            BUSY,
            demand,
            one_device,
            headroom=0.8,
            batch_sequences=64,
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


def test_where_all_take_turns_nobody_could_step_meanwhile() -> None:
    in_rounds = dataclasses.replace(DEMAND, in_rounds=True)
    waiting = Sizing(1, predict(dataclasses.replace(FREE, answer=1.0), in_rounds, ONE), "lock_step")
    assert waiting.binding == ANSWERS
    assert "more groups" not in in_words(waiting) and "take turns" in in_words(waiting)
    # An env server steps all of its environments before anybody acts.
    crowded = dataclasses.replace(in_rounds, envs_per_server=100)
    stepping = Sizing(1, predict(FREE, crowded, ONE), "lock_step")
    assert stepping.binding == STEPPING and "fewer environments in each" in in_words(stepping)


def test_a_thread_that_is_never_idle_has_room_while_batches_can_grow() -> None:
    # A batch takes 5 ms however many are in it. Of 100 messages it has 5 or so, one after another.
    slow = dataclasses.replace(FREE, answer=5e-3, act=5e-3)
    found = size(slow, DEMAND, one_device, headroom=0.8, batch_sequences=64)
    assert found.hosts == 1
    assert found.prediction.loads[ACTING] == pytest.approx(
        found.prediction.messages_per_second * 5e-3 / 100
    )


def test_hosts_that_share_what_learns_are_looked_at_as_they_then_are() -> None:
    # Four devices of all hosts learn: one of each of four.
    def sharing(hosts: int) -> Machines:
        return Machines(devices=-(-4 // hosts), learning=-(-4 // hosts))

    busy = dataclasses.replace(BUSY, learner_message=3e-3, update=0.1)
    learning = dataclasses.replace(DEMAND, steps_per_update=100.0)
    found = size(busy, learning, sharing, headroom=0.8, batch_sequences=4)
    assert found.hosts == 4
    of_each = found.prediction.steps_per_second * 0.1 / 100
    assert found.prediction.loads[DEVICES] == pytest.approx(of_each)


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
    found = size(BUSY, DEMAND, one_device, headroom=0.8, batch_sequences=64)
    assert found.prediction.loads[STEPPING] > found.prediction.loads[INTERPRETER]
    assert found.binding == INTERPRETER
