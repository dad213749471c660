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
    crowd = fleet(environments=400, step_seconds=0.01)
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
    # A row takes 0.1 ms, an update of 0.2 s makes up for 500 steps, 0.4 ms each: 0.5 ms, of two.
    crowd = fleet(environments=400, step_seconds=0.05, steps_per_update=500.0)
    each = costs(act_row=1e-4, update=0.2, answer=1e-4)
    found = predict(each, crowd, Machines(devices=2, acting=2))
    assert found.steps_per_second == pytest.approx(4_000, rel=0.01)
    assert found.loads[prediction.DEVICES] == pytest.approx(1.0, rel=0.01)


def test_one_thread_acts() -> None:
    # A batch takes 1 ms, and 0.1 ms for each message after the first: of all 100 of them 10.9 ms.
    crowd = fleet(environments=100, step_seconds=0.001)
    found = predict(costs(act=0.001, act_message=1e-4, answer=0.001), crowd, APART)
    assert found.messages_per_batch == pytest.approx(100, rel=1e-3)
    assert found.messages_per_second == pytest.approx(100 / 0.0109, rel=0.01)


def test_each_device_that_acts_has_batches_of_its_own() -> None:
    # 1,000 messages in 101 ms or so: each device has an eighth of them, and of a millisecond's.
    crowd = fleet(environments=1_000, step_seconds=0.1)
    eight = Machines(devices=8, acting=8)
    found = predict(costs(answer=1e-3, act=1e-5), crowd, eight)
    of_each = found.messages_per_second / 8
    assert found.messages_per_batch == pytest.approx(1 + of_each * 0.001, rel=1e-3)
    # A batch is due at half of its 125, and has all of them at most.
    patient = dataclasses.replace(crowd, batch_deadline_seconds=1.0)
    assert predict(FREE, patient, eight).messages_per_batch == pytest.approx(63)
    in_step = dataclasses.replace(patient, equal_steps=True)
    assert predict(FREE, in_step, eight).messages_per_batch == pytest.approx(63)
    found = predict(costs(act=0.5, act_message=0.5 / 124), crowd, eight)
    assert found.messages_per_batch == pytest.approx(125)
    assert found.messages_per_second == pytest.approx(8 * 125, rel=1e-3)
    assert found.loads[prediction.ACTING] == pytest.approx(1.0, rel=1e-3)


def test_no_device_acts_for_less_than_a_message() -> None:
    found = predict(costs(act=1e-3, answer=1e-3), fleet(environments=3), Machines(acting=8))
    assert found.messages_per_batch == pytest.approx(1.0)
    assert found.loads[prediction.ACTING] == pytest.approx(found.messages_per_second * 1e-3 / 3)


def test_messages_of_other_devices_come_in_between_those_of_equal_steps() -> None:
    # 0.1 ms each at an interpreter that is in use nearly half of the time. Half of that is for the
    # other device: only what is left brings those who were answered together back together.
    each = costs(learner_message=1e-4, answer=0.1)
    crowd = fleet(environments=1_000, step_seconds=0.1, equal_steps=True)
    found = predict(each, crowd, Machines(devices=2, acting=2))
    others = found.loads[prediction.INTERPRETER] / 2
    assert found.messages_per_batch == pytest.approx(1 + 0.001 / (1e-4 / (1 - others)))
    assert 0.2 < others < 0.25


def test_devices_that_only_act_leave_the_others_to_learn() -> None:
    # Learning takes 0.5 ms of one device for each row, acting 0.1 ms of the other.
    crowd = fleet(environments=400, step_seconds=0.05, steps_per_update=500.0)
    each = costs(act_row=1e-4, update=0.25, answer=1e-4)
    apart = predict(each, crowd, Machines(acting=1, act_elsewhere=True))
    assert apart.steps_per_second == pytest.approx(2_000, rel=0.01)
    assert apart.loads[prediction.DEVICES] == pytest.approx(1.0, rel=0.01)
    assert apart.loads[prediction.ACTING] == pytest.approx(0.2, rel=0.01)


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


def test_groups_with_threads_sleep_side_by_side() -> None:
    # An env server has 10 environments of 10 ms: 100 steps a second, one group at a time or two.
    one = fleet(environments=10, envs_per_server=10, groups=2, step_seconds=0.01)
    two = dataclasses.replace(one, groups_at_once=2)
    found = predict(costs(answer=1e-4), one, APART)
    assert found.steps_per_second == pytest.approx(100)
    assert predict(FREE, two, APART).steps_per_second == pytest.approx(200)
    # What they compute takes turns.
    busy = dataclasses.replace(two, step_cpu_seconds=0.0075)
    assert predict(FREE, busy, APART).steps_per_second == pytest.approx(1 / 0.0075)
    assert predict(FREE, busy, APART).loads[prediction.STEPPING] == pytest.approx(1.0)


def test_groups_do_not_step_meanwhile_where_all_are_waited_for() -> None:
    # As `test_groups_step_while_others_wait`, but 5 ms of each group and 4 of the answer to both.
    two = fleet(environments=10, envs_per_server=10, groups=2, step_seconds=0.001, in_rounds=True)
    found = predict(costs(answer=0.004), two, APART)
    assert found.steps_per_second == pytest.approx(10 / 0.014)
    assert found.messages_per_batch == 2
    assert found.loads[prediction.STEPPING] == pytest.approx(10 / 14)
    # Threads have them step side by side.
    threads = dataclasses.replace(two, groups_at_once=2)
    found = predict(costs(answer=0.004), threads, APART)
    assert found.steps_per_second == pytest.approx(10 / 0.009)


def test_a_round_reads_and_acts_on_all_before_any_steps() -> None:
    # 1 ms alone; 10 + 20 + 30 µs for each of nine more.
    each = costs(answer=0.001, learner_message=1e-5, act=1e-4, act_message=2e-5, act_row=3e-5)
    ten = fleet(environments=10, step_seconds=0.01, in_rounds=True)
    found = predict(each, ten, APART)
    assert found.messages_per_second == pytest.approx(10 / (0.011 + 9 * 6e-5))
    batch = 1e-4 + 9 * 2e-5 + 10 * 3e-5
    assert found.loads[prediction.ACTING] == pytest.approx(batch / (0.011 + 9 * 6e-5))


def test_a_round_waits_for_what_is_left_of_an_update() -> None:
    # Ten steps of 10 ms are an update of as much: it is over when they have stepped.
    ten = fleet(environments=10, step_seconds=0.01, steps_per_update=10.0, in_rounds=True)
    for update, seconds in ((0.01, 0.011), (0.02, 0.021), (0.04, 0.041)):
        found = predict(costs(answer=0.001, update=update), ten, APART)
        assert found.steps_per_second == pytest.approx(10 / seconds)
    # Two devices take half of the time; five updates of a batch are made in a row.
    found = predict(costs(answer=0.001, update=0.04), ten, Machines(devices=2))
    assert found.steps_per_second == pytest.approx(10 / 0.021)
    often = dataclasses.replace(ten, steps_per_update=2.0)
    found = predict(costs(answer=0.001, update=0.02), often, APART)
    assert found.steps_per_second == pytest.approx(10 / 0.101)
    # Of an update in every fourth batch only the first step of four is under way.
    seldom = dataclasses.replace(ten, steps_per_update=40.0)
    found = predict(costs(answer=0.001, update=0.05), seldom, APART)
    assert found.steps_per_second == pytest.approx(10 / (0.011 + 0.04 / 4))


def test_rounds_share_the_cores_of_one_machine() -> None:
    busy = fleet(environments=8, step_seconds=0.005, step_cpu_seconds=0.005, in_rounds=True)
    found = predict(costs(answer=0.001), busy, Machines(shared_cores=2))
    assert found.steps_per_second == pytest.approx(2 / 0.005)
    assert found.loads[prediction.CORES] == pytest.approx(1.0)


def test_nothing_is_learned_by_default() -> None:
    assert SLEEPING.steps_per_update == math.inf
    assert predict(costs(update=1.0), SLEEPING, APART).loads[prediction.DEVICES] == 0.0
