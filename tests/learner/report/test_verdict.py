"""The verdict of a run: a table of metrics, each with the cause and the gain worked by hand."""

from typing import Any

import pytest

from learner.report.balance import costs_of
from learner.report.verdict import Conditions, sentence, verdict

# 10 env servers of 5 ms a step could do 2,000 steps/s; learning does 800 of them.
LEARNING_BINDS = {
    "env_steps_per_second": 800.0,
    "env_servers": 10.0,
    "env_step_ms": 5.0,
    "acting_environment_share": 0.1,
    "acting_waits_share": 0.62,
    "acting_act_share": 0.2,
    "learning_waits_share": 0.0,
    "replay_ratio_target": 4.0,
    "learner_cpu_seconds_per_second": 1.2,
    "env_servers_cpu_seconds_per_second": 0.1,
}
# 2 of 5 ms do 400 steps/s; learning could do 4,000.
SAMPLING_BINDS = {
    **LEARNING_BINDS,
    "env_steps_per_second": 400.0,
    "env_servers": 2.0,
    "acting_environment_share": 0.75,
    "acting_act_share": 0.2,
    "acting_waits_share": 0.0,
    "learning_waits_share": 0.9,
}
_WAITS = 1e-3  # of learning for one of eight cores


def found(
    metrics: dict[str, float], *, takes_turns: bool = False, **conditions: object
) -> tuple[str, str, float]:
    costs = costs_of(metrics, cores=8, takes_turns=takes_turns)
    assert costs is not None
    verdict_ = verdict(metrics, costs, Conditions(**conditions))  # type: ignore[arg-type]
    return verdict_.cause, verdict_.change, verdict_.gain


def test_the_cause_is_the_cheapest_change_that_brings_a_tenth() -> None:
    assert found(SAMPLING_BINDS) == (
        *("slow environments", "one more env server, of 1 environment"),
        pytest.approx(0.5),
    )
    # The median of 60, 10 and 50 is 50: 160 instead of 120.
    straggler = found(SAMPLING_BINDS, rates={"a:1": 60.0, "a:2": 10.0, "b:7": 50.0})
    assert straggler == (
        *("one straggler", "env server a:2 as fast as the others"),
        pytest.approx(160 / 120 - 1),
    )
    assert found(SAMPLING_BINDS, rates={"a:1": 50.0, "a:2": 30.0})[0] == "slow environments"
    # 40 % of the time is lost at the deadline: 1 / 0.8.
    late = {"late_batches_per_second": 40, "acting_batch_share": 0.5}
    assert found({**SAMPLING_BINDS, **late}, deadline_seconds=0.01) == (
        *("long deadline", "batch deadline 5 ms instead of 10 ms"),
        pytest.approx(0.25),
    )
    # One env server steps for 60 % of the time, and acting works for 40 % of it on its batches,
    # which would be half as large: 1 / 0.8.
    one = {"env_servers": 1.0, "env_step_ms": 1.5, "acting_environment_share": 0.6}
    one |= {"acting_act_share": 0.4}
    assert found({**SAMPLING_BINDS, **one}, groups=1, environments=4) == (
        *("too few groups", "2 groups instead of 1"),
        pytest.approx(0.25),
    )
    assert found({**SAMPLING_BINDS, **one}, groups=1)[0] == "slow environments"
    # A turn of 3 ms may be mostly its message: two groups send two.
    assert found({**SAMPLING_BINDS, **one}, groups=1, environments=2)[0] == "slow environments"
    # Env servers step for a fifth of the time. With twice the environments a turn takes 1.2.
    own = {"env_own_step_ms": 1.0}
    assert found({**SAMPLING_BINDS, **own}) == (
        *("slow network", "twice the environments of each env server"),
        pytest.approx(2 / 1.2 - 1),
    )
    quick = {"env_step_ms": 1.0, "acting_environment_share": 0.2, "acting_act_share": 0.8}
    assert found({**SAMPLING_BINDS, **quick})[0] == "small batches"
    # Learning allows half as much again.
    half = found({**SAMPLING_BINDS, **own, "learning_waits_share": 1 / 3})[2]
    assert half == pytest.approx(0.5, abs=_WAITS)


def test_learning_binds_for_its_ratio_its_updates_or_a_queue() -> None:
    # Each step learned once: 3,200 steps/s, more than the 2,000 of the environments.
    assert found(LEARNING_BINDS) == (
        *("high replay ratio", "replay ratio 2 instead of 4"),
        pytest.approx(1.0, abs=_WAITS),
    )
    assert found({**LEARNING_BINDS, "replay_ratio_target": 2.0})[0] == "slow updates"
    queue = {key: value for key, value in LEARNING_BINDS.items() if key != "replay_ratio_target"}
    # With one epoch nothing makes learning cheaper, and more env servers only add policy lag.
    assert found(queue) == ("full queue", "", 0.0)
    assert found(queue, epochs=4) == (
        "full queue",
        "2 epochs instead of 4",
        pytest.approx(1.0, abs=_WAITS),
    )
    assert found(queue, epochs=3)[1] == "1 epoch instead of 3"


def test_the_sentence_names_one_change_that_helps_the_side_that_binds() -> None:
    def line(metrics: dict[str, float], **conditions: Any) -> str:
        costs = costs_of(metrics, cores=8)
        assert costs is not None
        return sentence(metrics, costs, verdict(metrics, costs, Conditions(**conditions)))

    binds = "learning binds ({}): acting waits 62% of the time"
    change = "; replay ratio 2 instead of 4: +100% steps/s"
    assert line(LEARNING_BINDS) == binds.format("high replay ratio") + change
    queue = {key: value for key, value in LEARNING_BINDS.items() if key != "replay_ratio_target"}
    assert line(queue) == binds.format("full queue")
    assert line(SAMPLING_BINDS, environments=16) == (
        "acting binds (slow environments or network): learning waits 90% of the time, and acting "
        "spends 75% of it on environment; one more env server, of 16 environments: +50% steps/s"
    )


def test_other_programs_are_a_cause_if_the_run_waits_for_cores() -> None:
    # Its threads wait for a core in half of their time, and a third of what ran was not ours: a
    # third of all the time.
    busy = {"learner_cpu_delay_seconds_per_second": 1.2, "other_cpu_seconds_per_second": 0.65}
    assert found({**LEARNING_BINDS, **busy}) == (
        *("busy neighbour", "without other programs, which take 0.7 of 8 cores"),
        pytest.approx(0.5),
    )
    # Always with the synchronous schedule: one side or the other needs a core.
    assert found({**LEARNING_BINDS, **busy}, takes_turns=True)[0] == "busy neighbour"
    assert found(LEARNING_BINDS, takes_turns=True)[0] != "busy neighbour"
    # Env servers that sleep for 75 % of the time do not need one.
    cause, _, _ = found({**SAMPLING_BINDS, **busy, "env_servers_cpu_seconds_per_second": 0.0})
    assert cause == "slow environments"
    # A device learns.
    device = {"learner_cpu_seconds_per_second": 0.05, "env_servers_cpu_seconds_per_second": 0.0}
    device |= {"learner_cpu_delay_seconds_per_second": 0.03, "other_cpu_seconds_per_second": 7.0}
    assert found({**LEARNING_BINDS, **device})[0] == "high replay ratio"
    # Ours wait for each other.
    assert found({**LEARNING_BINDS, **busy, "other_cpu_seconds_per_second": 0.0})[0] != cause
