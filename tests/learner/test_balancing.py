"""Moves of a live run: a fleet whose speed is the model's, without time or processes."""

import math
from typing import Any

import pytest

from learner.balancing import Balancer, Setting
from learner.processes.env_servers import Fleet, Fleets
from learner.report.verdict import Conditions
from tests.learner.report.listener import Heard


class Started:
    """Env servers that are only counted."""

    def __init__(self, fleet: Fleet, running: list[Fleet]) -> None:
        self._fleet, self._running = fleet, running

    def __enter__(self) -> "Started":
        self._running.append(self._fleet)
        return self

    def __exit__(self, *_: object) -> None:
        self._running.remove(self._fleet)


def counted(running: list[Fleet]) -> Any:
    return lambda fleet, _: Started(fleet, running)


class Simulated:
    """A run with env servers of t seconds a step, and a learner of `most` steps/s."""

    def __init__(self, *, env_servers: int = 2, groups: int = 2) -> None:
        self.most, self.step_seconds = 1000.0, 0.001
        self.useful = math.inf  # env servers; more bring nothing, whatever the model says
        self.now, self.building = 0.0, 0
        self.running: list[Fleet] = []
        self.heard, self.deadlines = Heard(), list[float]()
        self.fleets = Fleets(Fleet(env_servers, 4, groups), counted(self.running), most=16)
        self.fleets.__enter__()
        self.balancer = Balancer(
            Setting(env_servers, groups, 0.008),
            self.fleets,
            set_deadline=self.deadlines.append,
            listener=self.heard,
            clock=lambda: self.now,
        )

    @property
    def moves(self) -> list[dict[str, Any]]:
        events = self.heard.events
        assert all(each.kind == "balance" and not each.is_problem for each in events)
        return [each.fields for each in events]

    @property
    def number(self) -> int:
        return sum(fleet.num_servers for fleet in self.running)

    def play(self, intervals: int, seconds: float = 5.0, **metrics: float) -> None:
        for _ in range(intervals):
            self.now += seconds
            could = min(self.number - self.building, self.useful) / self.step_seconds
            rate = min(could, self.most)
            found = {
                "env_steps_per_second": rate,
                "env_servers": float(self.number),
                "env_step_ms": 1e3 * self.step_seconds,
                "acting_environment_share": rate / could * 0.9,
                "acting_waits_share": 1 - rate / could,
                "learning_waits_share": 1 - rate / self.most,
                **metrics,
            }
            # No move changes either: another program, an env server that is slower than others.
            found |= {
                f"{what}_seconds_per_second": 1.0 for what in ("other_cpu", "learner_cpu_delay")
            }
            rates = {
                f"vm:{number}": 1.0 + 10 * number for number in range(self.number - self.building)
            }
            groups = self.running[0].num_groups
            self.balancer.update(
                found, Conditions(rates, groups, 4, self.balancer.setting.batch_deadline_seconds)
            )


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    release = staticmethod(lambda started: started.__exit__())
    monkeypatch.setattr(Fleets, "_release", release)


def test_env_servers_are_started_for_a_slow_environment_and_released_after_it() -> None:
    run = Simulated()
    run.play(4)
    assert run.moves == [] and run.number == 2  # learning binds
    run.step_seconds = 0.012
    run.play(1)
    assert run.number == 2  # it may be chance
    run.play(1)
    assert run.number == 15  # 1,000 steps/s of 12 ms, and a quarter
    run.building = 10
    run.play(2)
    run.building = 0
    run.play(3)
    run.step_seconds = 0.001
    run.play(2)
    assert run.number == 2
    run.play(20)
    first, first_measured, second, second_measured = run.moves
    assert (first["before"]["env_servers"], first["after"]["env_servers"]) == (2, 15)
    assert first["predicted"] == pytest.approx(5.0) and first["measured"] is None
    assert first_measured["measured"] == pytest.approx(5.0) and first_measured["is_kept"]
    assert (second["after"]["env_servers"], second["predicted"]) == (2, 0.0)
    assert second_measured["measured"] == 0.0 and second_measured["is_kept"]


def test_a_move_after_which_no_step_comes_is_undone() -> None:
    run = Simulated()
    run.step_seconds = 0.012
    run.play(2)
    assert run.number == 15
    run.building = 14
    run.play(5, env_steps_per_second=0.0)
    assert run.number == 15  # they may still build their environments
    run.play(1, env_steps_per_second=0.0)
    assert run.number == 2 and run.moves[-1]["measured"] == -1.0


def test_a_move_in_vain_is_undone_and_tried_again_only_at_another_pace() -> None:
    run = Simulated()
    run.step_seconds, run.useful = 0.01, 2
    run.play(30)
    assert run.number == 2
    assert [move["is_kept"] for move in run.moves] == [True, False]
    run.step_seconds = 0.02
    run.play(4)
    assert len(run.moves) == 4


def test_a_minute_has_three_moves_at_most() -> None:
    run = Simulated()
    moves = []
    for interval in range(150):
        run.step_seconds = 0.001 if interval % 20 < 10 else 0.012
        before = run.balancer.setting
        run.play(1, seconds=1.0)
        if run.balancer.setting != before:
            moves.append(run.now)
    assert len(moves) >= 6
    assert all(last - first >= 60 for first, last in zip(moves, moves[3:], strict=False))


def test_groups_and_the_deadline_follow_the_verdict() -> None:
    run = Simulated(groups=1, env_servers=1)
    run.step_seconds = 0.006
    alone = {"acting_environment_share": 0.6, "acting_act_share": 0.4, "env_step_ms": 3.6}
    run.play(2, **alone, learning_waits_share=0.9)
    assert run.balancer.setting == Setting(1, 2, 0.008)
    assert run.running == [Fleet(1, 4, 2)]
    run = Simulated()
    late = {
        "late_batches_per_second": 100.0,
        "acting_batch_share": 0.5,
        "learning_waits_share": 0.9,
    }
    run.step_seconds = 0.01
    run.play(1)
    run.play(1, **late)  # the two intervals do not agree
    assert run.moves == []
    run.play(1, **late)
    assert run.deadlines == [0.004] and run.number == 2
    run.play(3, **late)  # in vain: the simulation knows no deadline
    assert run.deadlines == [0.004, 0.008]


def test_env_servers_are_released_from_the_last_ones_on() -> None:
    running: list[Fleet] = []
    with Fleets(Fleet(2, 4, 2), counted(running), most=16) as fleets:
        fleets.resize(5)
        fleets.resize(6)
        assert fleets.sizes == [2, 5, 6] and running == [
            Fleet(2, 4, 2),
            Fleet(3, 4, 2),
            Fleet(1, 4, 2),
        ]
        fleets.resize(5)
        assert fleets.sizes == [2, 5]
        fleets.resize(1)
        assert fleets.sizes == [2]  # those of the start stay
    assert running == []
