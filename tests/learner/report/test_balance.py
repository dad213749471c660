"""The model of balance: its worked example, and a simulation of events that knows nothing of it."""

import heapq
import math
import random
from collections import Counter, deque
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
    # Of two cores others use 0.5 ms * 789 / 2 = 0.197. 0.197 ** (6 ** 0.5 - 1) / (2 * 0.803) of
    # 0.3 ms is 0.018 ms.
    assert capacities(EXAMPLE, 4) == pytest.approx(
        {"environments": 400, "sampling": 1000 / 2.8, "learning": 788.8, "cores": 2500}, rel=1e-4
    )
    assert steps_per_second(EXAMPLE, 4) == pytest.approx(357, abs=0.5)
    assert gain(EXAMPLE, 5) == pytest.approx(0.25)
    assert gain(EXAMPLE, 4, ratio=0.5) == pytest.approx(0.0)
    assert [round(steps_per_second(EXAMPLE, number)) for number in (9, 20, 1000)] == [794, 796, 797]
    # Half the ratio: learning of 0.625 ms at 20 env servers; cores 2 / (0.2 + 0.06 + 0.15).
    assert steps_per_second(EXAMPLE, 20, ratio=0.5) == pytest.approx(1576, abs=0.5)
    assert capacities(EXAMPLE, 20, ratio=0.5)["cores"] == pytest.approx(2000 / 0.41)
    assert saturation(EXAMPLE) == pytest.approx(794.1 * 0.0028 * 4, rel=1e-4)
    # 10 ms more a step of each of four env servers: 2.5 ms of acting's time.
    assert slowed(EXAMPLE, 0.020)[1:3] == pytest.approx((0.020, 0.0053))
    # Of 2.8 ms of acting its program took 1, and takes 0.25 ms.
    quick = accelerated(EXAMPLE._replace(act=0.001), 4)
    assert (quick.sampling, quick.learning) == pytest.approx((0.00205, 0.0003125))
    assert quick.learning_cpu == pytest.approx(0.000075)


def test_an_update_waits_for_the_last_of_its_threads() -> None:
    # One and a half of two cores are two threads: others delay each by half their time.
    costs = EXAMPLE._replace(learning_cpu=1.5 * EXAMPLE.learning)
    assert capacities(costs, 4)["learning"] == pytest.approx(1 / (0.00125 + 0.0005 / 2))
    # A little work beside the update is not a thread.
    alone, little = (EXAMPLE._replace(learning_cpu=part * EXAMPLE.learning) for part in (1.0, 1.04))
    assert capacities(little, 4)["learning"] == pytest.approx(capacities(alone, 4)["learning"])


def test_half_the_replay_ratio_is_named_only_if_it_brings_something() -> None:
    change = "Then replay ratio 2 instead of 4"
    assert change in advice(EXAMPLE, 20, replay_ratio=4.0)
    assert change not in advice(EXAMPLE, 9, replay_ratio=4.0)  # 803 of sampling, not 794


@pytest.mark.parametrize("cores", [1, 4])
def test_learning_on_all_cores_gets_the_rest_of_them(cores: int) -> None:
    costs = EXAMPLE._replace(cores=cores, learning_cpu=cores * EXAMPLE.learning)
    for number in (1, 4, 20):
        limits = capacities(costs, number)
        assert limits["learning"] == pytest.approx(limits["cores"])
    # Their number at the saturation point: cores C / (1.25 C + 0.2 + 0.3 * 4 / N) = N / 11.2.
    enough = (cores * 11.2 - 1.2) / (cores * 1.25 + 0.2)
    assert saturation(costs) == pytest.approx(enough)


def test_a_measured_cost_of_learning_has_its_waits_for_cores() -> None:
    there = capacities(EXAMPLE, 4)["learning"]
    others = EXAMPLE.environment_cpu + EXAMPLE.acting_cpu
    measured = EXAMPLE._replace(learning=1 / there, used=there * others / EXAMPLE.cores)
    for number in (2, 4, 100):
        now = capacities(measured, number)["learning"]
        assert now == pytest.approx(capacities(EXAMPLE, number)["learning"])


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
    # Of 8 cores others use 0.2 of acting, and 0.1 of env servers.
    assert costs == pytest.approx(expected._replace(act=0.15 / 800, used=0.3 / 8))
    for absent in ("env_steps_per_second", "env_servers", "env_step_ms", "acting_waits_share"):
        assert costs_of({k: v for k, v in METRICS.items() if k != absent}, cores=8) is None
    idle = {**METRICS, "learning_waits_share": 1.0, "learning_learn_share": 0.02}
    assert costs_of(idle, cores=8) is None  # not learned yet
    costs = costs_of({**idle, "updates_per_second": 0.5}, cores=8)
    assert costs is not None and costs.learning == pytest.approx(0.02 / 800)


class Fleet(NamedTuple):
    """What is simulated: env servers of some groups, each of some environments."""

    env_servers: int
    step_seconds: float  # of a group
    batch_seconds: float
    update_seconds: float
    update_steps: int  # environment steps that an update makes up for
    groups: int = 2
    environments: int = 4  # of a group
    cores: int = 10**6
    computing: float = 0.0  # share of an environment's step that needs a core; acting always does
    threads: int = 1  # of an update


def simulated(fleet: Fleet, seconds: float = 10.0) -> tuple[float, Costs]:
    """Plays what happens, one event after another: steps per second, and what a step cost."""
    sleeping: list[tuple[float, str, int, float]] = []  # until when, then seconds of a core
    running: list[tuple[float, str, int]] = []  # seconds of a core to go
    waiting = deque[int]()  # steps at the learner, by env server
    owned = [deque[int]() for _ in range(fleet.env_servers)]  # groups that an env server owes
    threads = {"environment": 0, "acting": 0, "learning": 0}  # that have not ended
    target = -(-fleet.env_servers * fleet.groups // 2)
    steps = owed = 0
    batch: list[int] = []
    spent: Counter[str] = Counter()  # seconds of each, of their cores, and of acting's waits

    draw = random.Random(1).uniform

    def begin(kind: str, seconds: float, which: int = 0, computing: float = 1.0) -> None:
        seconds *= draw(0.8, 1.2)
        threads[kind] += 1
        spent[f"{kind} cpu"] += seconds * computing
        asleep = now + seconds * (1 - computing)
        heapq.heappush(sleeping, (asleep, kind, which, seconds * computing))

    def step(server: int) -> None:
        begin("environment", fleet.step_seconds, server, fleet.computing)

    now = 0.0
    for server in range(fleet.env_servers):
        owned[server].extend([0] * fleet.groups)
        step(server)
    while now < seconds:
        # All that want to run share the cores.
        speed = min(1.0, fleet.cores / max(1, len(running)))
        first = min(running, default=(math.inf,))[0]
        passed = min(first / speed, sleeping[0][0] - now if sleeping else math.inf)
        spent["environment"] += passed * threads["environment"]
        spent["acting"] += passed * threads["acting"]
        spent["learning"] += passed * (threads["learning"] > 0)
        if not threads["acting"] and len(waiting) >= target:
            spent["held"] += passed
        now += passed
        running = [(left - passed * speed, kind, which) for left, kind, which in running]
        while sleeping and sleeping[0][0] <= now:
            _, kind, which, left = heapq.heappop(sleeping)
            running.append((left, kind, which))
        ended = [each for each in running if each[0] <= 1e-12]
        if ended:
            running = [each for each in running if each[0] > 1e-12]
        for _, kind, which in ended:
            threads[kind] -= 1
            if kind == "environment":
                owned[which].popleft()
                waiting.append(which)
                if owned[which]:
                    step(which)
            elif kind == "acting":
                steps += len(batch) * fleet.environments
                owed += len(batch) * fleet.environments
                for server in batch:
                    owned[server].append(0)
                    if len(owned[server]) == 1:
                        step(server)
        if not threads["learning"] and owed >= fleet.update_steps:
            owed -= fleet.update_steps
            for _ in range(fleet.threads):
                begin("learning", fleet.update_seconds)
        if not threads["acting"] and len(waiting) >= target and owed < 2 * fleet.update_steps:
            batch = [waiting.popleft() for _ in range(len(waiting))]
            begin("acting", fleet.batch_seconds)
    costs = costs_of(
        {
            "env_steps_per_second": steps / now,
            "env_servers": fleet.env_servers,
            "env_step_ms": 1e3 * spent["environment"] / steps,
            "acting_waits_share": spent["held"] / now,
            "acting_act_share": spent["acting"] / now,
            "learning_waits_share": 1 - spent["learning"] / now,
            "learner_cpu_seconds_per_second": (spent["acting cpu"] + spent["learning cpu"]) / now,
            "env_servers_cpu_seconds_per_second": spent["environment cpu"] / now,
        },
        cores=fleet.cores,
    )
    assert costs is not None
    return steps / now, costs


FLEETS = [
    Fleet(2, 0.010, 0.001, 0.020, 40),  # environments bind, then learning
    Fleet(2, 0.010, 0.001, 0.020, 40, groups=1),
    Fleet(1, 0.050, 0.002, 0.100, 20),
    Fleet(3, 0.001, 0.002, 0.010, 100),  # acting binds, then learning
    Fleet(4, 0.100, 0.001, 0.050, 8, environments=1),
    Fleet(4, 0.005, 0.001, 0.500, 100),  # learning binds
]


# Two cores, which bind together with learning. The first two are CartPole and Pong, slowed.
ON_CORES = [
    Fleet(1, 0.011, 0.002, 0.015, 80, environments=8, cores=2, computing=0.15),
    Fleet(1, 0.084, 0.004, 0.072, 96, environments=8, cores=2, computing=0.075, threads=2),
    Fleet(1, 0.010, 0.001, 0.020, 40, cores=2, computing=0.3),
    Fleet(2, 0.010, 0.001, 0.020, 40, cores=4, computing=0.8),
    Fleet(2, 0.010, 0.001, 0.020, 40, cores=4, computing=0.8, threads=3),
]


@pytest.mark.parametrize("fleet", ON_CORES)
def test_learning_waits_for_cores_as_in_a_simulation(fleet: Fleet) -> None:
    seconds = 200 * fleet.update_seconds
    _, costs = simulated(fleet, seconds)
    point = round(saturation(costs))
    for env_servers, most in ((point, 0.15), (point + 2, 0.15), (2 * point, 0.2)):
        found, there = simulated(fleet._replace(env_servers=env_servers), seconds)
        assert abs(steps_per_second(costs, env_servers) / found - 1) <= most
    # What it measures there is what it gets there.
    assert steps_per_second(there, env_servers) == pytest.approx(found, rel=0.02)


@pytest.mark.gate  # one fleet: the worked example
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
