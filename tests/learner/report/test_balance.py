"""The model of balance: its worked example, and a simulation of events that knows nothing of it."""

import heapq
import random
from collections import deque
from typing import NamedTuple

import pytest

from learner.report.balance import (
    Costs,
    accelerated,
    advice,
    capacities,
    costs_of,
    gain,
    saturation,
    slowed,
    steps_per_second,
)

EXAMPLE = Costs(
    env_servers=4,
    environment=0.010,
    sampling=0.0028,
    learning=0.00125,
    cores=2,
    environment_cpu=0.0002,
    acting_cpu=0.0003,
    learning_cpu=0.0003,
)


def test_the_worked_example() -> None:
    assert capacities(EXAMPLE, 4) == pytest.approx(
        {"environments": 400, "sampling": 1000 / 2.8, "learning": 800, "cores": 2500}
    )
    assert steps_per_second(EXAMPLE, 4) == pytest.approx(357, abs=0.5)
    assert gain(EXAMPLE, 5) == pytest.approx(0.25)
    assert gain(EXAMPLE, 4, ratio=0.5) == pytest.approx(0.0)
    for env_servers in (9, 10, 100):
        assert steps_per_second(EXAMPLE, env_servers) == pytest.approx(800)
    # Half the ratio: learning 1600 at 20 env servers; cores 2 / (0.2 + 0.06 + 0.15).
    assert steps_per_second(EXAMPLE, 20, ratio=0.5) == pytest.approx(1600)
    assert capacities(EXAMPLE, 20, ratio=0.5)["cores"] == pytest.approx(2000 / 0.41)
    # 800 * 0.0028 * 4. With the cores: 2 / (0.5 + 0.3 * 4 / N) = N / 11.2.
    assert saturation(EXAMPLE) == pytest.approx(8.96)
    assert saturation(EXAMPLE._replace(learning=0.0002)) == pytest.approx((22.4 - 1.2) / 0.5)
    # 10 ms more a step of each of four env servers: 2.5 ms of acting's time.
    assert slowed(EXAMPLE, 0.020)[1:3] == pytest.approx((0.020, 0.0053))
    # Of 2.8 ms of acting its program took 1, and takes 0.25 ms.
    quick = accelerated(EXAMPLE._replace(act=0.001), 4)
    assert (quick.sampling, quick.learning) == pytest.approx((0.00205, 0.0003125))
    assert quick.learning_cpu == pytest.approx(0.000075)


def test_sides_that_take_turns_add_up() -> None:
    # 2.8 + 1.25 ms a step; with 8 env servers 1.4 + 1.25.
    turns = EXAMPLE._replace(takes_turns=True)
    assert capacities(turns, 4) == pytest.approx({"turns": 1000 / 4.05})
    assert gain(turns, 8) == pytest.approx(4.05 / 2.65 - 1)


METRICS = {
    "env_steps_per_second": 800.0,
    "env_servers": 10.0,
    "env_step_ms": 5.0,
    "acting_waits_share": 0.62,
    "acting_act_share": 0.15,
    "acting_wire_share": 0.05,
    "learning_waits_share": 0.0,
    "replay_ratio_target": 4.0,
    "learner_cpu_seconds_per_second": 1.2,
    "env_servers_cpu_seconds_per_second": 0.1,
}


def test_costs_are_shares_over_the_rate() -> None:
    # 0.2 of acting's computing and 1.0 of learning share the learner's processor time.
    costs = costs_of(METRICS, cores=8)
    assert costs is not None
    expected = Costs(10, 0.005, 0.38 / 800, 1 / 800, 8, 0.1 / 800, 0.2 / 800, 1.0 / 800)
    assert costs == pytest.approx(expected._replace(act=0.15 / 800))
    for absent in ("env_steps_per_second", "env_servers", "env_step_ms", "acting_waits_share"):
        assert costs_of({k: v for k, v in METRICS.items() if k != absent}, cores=8) is None
    idle = {**METRICS, "learning_waits_share": 1.0, "learning_learn_share": 0.02}
    assert costs_of(idle, cores=8) is None  # not learned yet
    costs = costs_of({**idle, "updates_per_second": 0.5}, cores=8)
    assert costs is not None and costs.learning == pytest.approx(0.02 / 800)


def test_advice_counts_env_servers_and_says_what_binds_then() -> None:
    more = advice(EXAMPLE, 4, replay_ratio=4.0)
    assert "9 instead of 4 give +124%" in more and "then learning binds" in more
    assert "9 of 16 env servers" in advice(EXAMPLE, 16)
    assert "the cores" in advice(EXAMPLE._replace(learning=0.0001), 100)


class Fleet(NamedTuple):
    """What is simulated: env servers of some groups, each of some environments."""

    env_servers: int
    step_seconds: float  # of a group
    batch_seconds: float
    update_seconds: float
    update_steps: int  # environment steps that an update makes up for
    groups: int = 2
    environments: int = 4  # of a group


def simulated(fleet: Fleet, seconds: float = 10.0) -> tuple[float, Costs]:
    """Plays what happens, one event after another: steps per second, and what a step cost."""
    events: list[tuple[float, str, int]] = []
    waiting = deque[int]()  # steps at the learner, by env server
    owned = [deque[int]() for _ in range(fleet.env_servers)]  # groups that an env server owes
    is_acting = is_learning = False
    busy = {"environment": 0.0, "acting": 0.0, "learning": 0.0}
    target = -(-fleet.env_servers * fleet.groups // 2)
    steps = owed = 0
    batch: list[int] = []
    held = 0.0  # how long acting had a batch and waited for learning

    draw = random.Random(1).uniform

    def begin(now: float, kind: str, seconds: float, which: int = 0) -> None:
        seconds *= draw(0.8, 1.2)
        busy[kind] += seconds
        heapq.heappush(events, (now + seconds, kind, which))

    for server in range(fleet.env_servers):
        owned[server].extend([0] * fleet.groups)
        begin(0.0, "environment", fleet.step_seconds, server)
    now = 0.0
    while now < seconds:
        before = now
        now, kind, which = heapq.heappop(events)
        if not is_acting and len(waiting) >= target:
            held += now - before
        if kind == "environment":
            owned[which].popleft()
            waiting.append(which)
            if owned[which]:
                begin(now, "environment", fleet.step_seconds, which)
        elif kind == "acting":
            is_acting = False
            steps += len(batch) * fleet.environments
            owed += len(batch) * fleet.environments
            for server in batch:
                owned[server].append(0)
                if len(owned[server]) == 1:
                    begin(now, "environment", fleet.step_seconds, server)
        else:
            is_learning = False
        if not is_learning and owed >= fleet.update_steps:
            is_learning, owed = True, owed - fleet.update_steps
            begin(now, "learning", fleet.update_seconds)
        if not is_acting and len(waiting) >= target and owed < 2 * fleet.update_steps:
            is_acting, batch = True, [waiting.popleft() for _ in range(len(waiting))]
            begin(now, "acting", fleet.batch_seconds)
    return steps / now, Costs(
        fleet.env_servers,
        environment=busy["environment"] / steps,
        sampling=(now - held) / steps,
        learning=busy["learning"] / steps,
        cores=10**6,
    )


FLEETS = [
    Fleet(2, 0.010, 0.001, 0.020, 40),  # environments bind, then learning
    Fleet(2, 0.010, 0.001, 0.020, 40, groups=1),
    Fleet(1, 0.050, 0.002, 0.100, 20),
    Fleet(3, 0.001, 0.002, 0.010, 100),  # acting binds, then learning
    Fleet(4, 0.100, 0.001, 0.050, 8, environments=1),
    Fleet(4, 0.005, 0.001, 0.500, 100),  # learning binds
]


def test_from_one_run_the_model_predicts_what_a_simulation_finds() -> None:
    errors = {}
    for fleet in FLEETS:
        _, costs = simulated(fleet)
        # With one group each, an odd number leaves env servers out of a batch of half of them.
        for env_servers in range(2, 13, 2):
            found, _ = simulated(fleet._replace(env_servers=env_servers))
            errors[fleet, env_servers] = steps_per_second(costs, env_servers) / found - 1
    wide = {case: error for case, error in errors.items() if abs(error) > 0.1}
    assert max(map(abs, errors.values())) <= 0.15 and len(wide) < 0.1 * len(errors), wide
