"""What a fleet would do, worked by hand for costs of round numbers."""

import dataclasses
import math

import pytest

from learner.planning import prediction
from learner.planning.costs import Costs
from learner.planning.demand import Demand, Machines
from learner.planning.prediction import predict

FREE = Costs(
    learner_message=0.0,
    learner_row=0.0,
    learner_byte=0.0,
    learner_batch=0.0,
    learner_cold=0.0,
    learner_at_rest=0.0,
    env_message=0.0,
    env_row=0.0,
    env_byte=0.0,
    env_cold=0.0,
    env_at_rest=0.0,
    answer=0.0,
    act=0.0,
    act_message=0.0,
)
SLEEPING = Demand(
    environments=1, envs_per_server=1, groups=1, step_seconds=0.05, step_cpu_seconds=0.0
)
APART = Machines(devices=1)


def fleet(**fields: object) -> Demand:
    return dataclasses.replace(SLEEPING, **fields)


def costs(**fields: float) -> Costs:
    return dataclasses.replace(FREE, **fields)


def test_an_environment_alone_steps_and_waits_for_its_answer() -> None:
    # 50 ms and 2 for the answer; 4 µs of it the learner's, 6 the env server's, and 0.1 cores each.
    each = costs(
        answer=0.002,
        learner_message=1e-6,
        learner_row=1e-6,
        learner_batch=2e-6,
        env_message=4e-6,
        env_row=2e-6,
        learner_at_rest=0.1,
        env_at_rest=0.1,
    )
    found = predict(each, SLEEPING, APART)
    assert found.steps_per_second == pytest.approx(1 / 0.052)
    assert found.messages_per_batch == pytest.approx(1.0)
    assert found.answer_seconds == pytest.approx(0.002)
    assert found.learner_cores == pytest.approx(0.1 + 4e-6 / 0.052)
    assert found.env_server_cores == pytest.approx(0.1 + 6e-6 / 0.052)


def test_those_who_wait_for_a_batch_answer_later() -> None:
    # Ten messages in 51 ms or so: 1 + λ of them share a batch, which the oldest waits 1 ms for.
    found = predict(costs(answer=0.001), fleet(environments=10), APART)
    rate = found.messages_per_second
    assert found.messages_per_batch == pytest.approx(1 + rate * 0.001, rel=1e-3)
    wait = 0.001 * (1 + rate * 0.001 / 2) / (1 + rate * 0.001)
    assert rate == pytest.approx(10 / (0.051 + wait), rel=1e-3)


def test_groups_step_while_others_wait() -> None:
    # Two groups of 5 environments of 1 ms: the one steps for 5 ms while the other waits for 4, and
    # none of them waits longer. One group would make 10 steps in 14 ms.
    two = fleet(environments=10, envs_per_server=10, groups=2, step_seconds=0.001)
    assert predict(costs(answer=0.004), two, APART).steps_per_second == pytest.approx(1_000)
    one = dataclasses.replace(two, groups=1)
    assert predict(costs(answer=0.004), one, APART).steps_per_second == pytest.approx(10 / 0.014)


def test_the_interpreter_is_one() -> None:
    # 100 µs a message: 10,000 a second, however many ask for more.
    crowd = fleet(environments=2_000, step_seconds=0.01)
    found = predict(costs(learner_message=1e-4, answer=1e-4), crowd, APART)
    assert found.steps_per_second == pytest.approx(10_000, rel=0.01)
    assert found.loads[prediction.INTERPRETER] == pytest.approx(1.0, rel=0.01)


def test_a_batch_costs_less_for_each_message_the_more_share_it() -> None:
    # 1,000 messages in 101 ms or so: about ten in each millisecond, and one that waited for them.
    crowd = fleet(environments=1_000, step_seconds=0.1)
    found = predict(costs(learner_batch=1e-5, answer=1e-3, act=1e-5), crowd, APART)
    share = 1e-5 / found.messages_per_batch
    assert found.messages_per_batch == pytest.approx(10.8, rel=0.02)
    assert found.learner_cores == pytest.approx(found.messages_per_second * share)


def test_who_has_slept_takes_longer_to_wake() -> None:
    # Of cycles of 50 ms 4 are too short to fall asleep: 0.92 of them find the learner so if one
    # arrives in each, 0.846 if two do; an env server is alone with its own, but on a shared
    # machine.
    each = costs(learner_cold=1e-3, env_cold=1e-3)
    one, two = (predict(each, fleet(environments=n), APART) for n in (1, 2))
    assert one.learner_cores == pytest.approx(20 * 0.92e-3)
    assert two.learner_cores == pytest.approx(40 * 0.8464e-3, rel=1e-3)
    assert two.env_server_cores == pytest.approx(40 * 0.92e-3, rel=1e-3)
    together = predict(each, fleet(environments=2), Machines(shared_cores=2))
    assert together.env_server_cores == pytest.approx(40 * 0.8464e-3, rel=1e-3)
    often = predict(each, fleet(step_seconds=0.004), APART)
    assert often.cores == 0.0


def test_environments_of_equal_steps_share_batches() -> None:
    # 1 ms a message and two cores: one every half millisecond, so two more while the oldest waits.
    # Alone with its interpreter a learner has one every 0.4 ms. And half of four are two.
    each = costs(learner_message=4e-4, env_message=6e-4, answer=0.002)
    together = Machines(shared_cores=2)
    found = predict(each, fleet(environments=8, equal_steps=True), together)
    assert found.messages_per_batch == pytest.approx(3.0)
    assert predict(each, fleet(environments=8), together).messages_per_batch < 1.2
    apart = predict(each, fleet(environments=8, equal_steps=True), APART)
    assert apart.messages_per_batch == pytest.approx(3.5)
    few = predict(each, fleet(environments=4, equal_steps=True), together)
    assert few.messages_per_batch == pytest.approx(2.0)


def test_the_first_of_those_who_come_together_wakes_what_sleeps() -> None:
    # Four in two batches: either finds the machine asleep unless the other was there just before.
    each = costs(learner_cold=1e-3, env_cold=1e-3)
    four = fleet(environments=4, equal_steps=True)
    found = predict(each, four, Machines(shared_cores=2))
    rate = found.messages_per_second
    share = (1 - 0.004 / (4 / rate)) ** 2
    assert found.learner_cores == pytest.approx(rate * 1e-3 * share / 2, rel=1e-3)
    assert found.env_server_cores == pytest.approx(rate * 1e-3 * share / 2, rel=1e-3)


def test_devices_act_and_learn() -> None:
    # A row takes 10 µs, an update of 20 ms makes up for 500 steps, 40 µs each: 50 µs, of two.
    crowd = fleet(environments=4_000, step_seconds=0.05, steps_per_update=500.0)
    each = costs(act_row=1e-5, update=0.02, answer=1e-5)
    found = predict(each, crowd, Machines(devices=2, acting=2))
    assert found.steps_per_second == pytest.approx(40_000, rel=0.01)
    assert found.loads[prediction.DEVICES] == pytest.approx(1.0, rel=0.01)


def test_one_thread_acts() -> None:
    # A batch takes 1 ms, and 0.1 ms for each message after the first: of all 100 of them 10.9 ms.
    crowd = fleet(environments=100, step_seconds=0.001)
    found = predict(costs(act=0.001, act_message=1e-4, answer=0.001), crowd, APART)
    assert found.messages_per_batch == pytest.approx(100, rel=1e-3)
    assert found.messages_per_second == pytest.approx(100 / 0.0109, rel=0.01)


def test_the_network_is_a_limit() -> None:
    crowd = fleet(environments=100, step_seconds=0.01, message_bytes=1e6)
    found = predict(FREE, crowd, Machines(devices=1, network_bytes_per_second=1e9))
    assert found.messages_per_second == pytest.approx(1_000, rel=1e-3)
    assert found.loads[prediction.NETWORK] == pytest.approx(1.0, rel=1e-3)


def test_cores_that_all_share_are_a_limit() -> None:
    # 5 ms of a core a step, and 1 of the learner's: 2 cores make 333 steps a second.
    busy = fleet(environments=8, step_seconds=0.005, step_cpu_seconds=0.005)
    found = predict(costs(learner_message=0.001, answer=0.001), busy, Machines(shared_cores=2))
    assert found.steps_per_second == pytest.approx(2 / 0.006, rel=0.02)
    assert found.cores == pytest.approx(2.0, rel=0.02)
    alone = dataclasses.replace(busy, environments=1)
    found = predict(costs(learner_message=0.001, answer=0.001), alone, Machines(shared_cores=2))
    assert found.steps_per_second == pytest.approx(1 / 0.006)


def test_bytes_cost_time() -> None:
    # 1 µs in the learner and 2 in the env server for each of 1,000 bytes: 3 ms beside 1 ms.
    each = costs(learner_byte=1e-6, env_byte=2e-6, answer=1e-3)
    found = predict(each, fleet(step_seconds=0.006, message_bytes=1_000.0), APART)
    assert found.steps_per_second == pytest.approx(100)
    assert found.learner_cores == pytest.approx(0.1)
    assert found.env_server_cores == pytest.approx(0.2)


def test_rows_of_a_message_take_time_too() -> None:
    # Nine more than one: 9 x (10 + 20 + 30 µs) beside 1 ms, and a step of 10 x 1 ms.
    each = costs(learner_row=1e-5, env_row=2e-5, act_row=3e-5, answer=1e-3)
    ten = fleet(environments=10, envs_per_server=10, step_seconds=0.001)
    assert predict(each, ten, APART).messages_per_second == pytest.approx(1 / 0.01154)


def test_nothing_is_learned_by_default() -> None:
    assert SLEEPING.steps_per_update == math.inf
    assert predict(costs(update=1.0), SLEEPING, APART).loads[prediction.DEVICES] == 0.0
