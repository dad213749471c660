"""Who is there, who is waited for, and what is said of it."""

from typing import Any

import pytest

from learner.reporting.env_servers.attendance import Attendance
from learner.reporting.env_servers.env_server import Arrival, Turn
from learner.reporting.status import Slots

DEADLINE = 60.0


class Heard:
    """What was said: kind and text."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []

    def say(self, kind: str, text: str, **fields: Any) -> None:
        self.events.append((kind, text))

    def take(self) -> list[tuple[str, str]]:
        taken, self.events = self.events, []
        return taken


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def attendance(heard: Heard) -> Attendance:
    return Attendance(heard, training_slots=8, evaluation_slots=100, step_deadline_seconds=DEADLINE)


def arrival(
    name: str = "vm:7", *, training: int = 8, evaluation: int = 27, **others: Any
) -> Arrival:
    offered = others.pop("offered", training + evaluation)
    return Arrival(name, offered, training, evaluation, groups=3, **others)


def turn(sequence: int, *, is_owed: bool = True, is_training: bool = True) -> Turn:
    return Turn(4, is_training, sequence, is_owed)


def test_an_env_server_joins_once_it_is_ready_and_how_slots_are_shared_is_said_once(
    attendance: Attendance, heard: Heard
) -> None:
    attendance.admitted(1, arrival(), 0.0)
    assert heard.take() == []
    assert attendance.found(5.0).servers[0].state == "building"
    attendance.ready(1, 9.0)
    assert heard.take() == [
        (
            "server_joined",
            "env server vm:7 joins with 35 environments: 8 to train (8 of 8 slots), 27 to "
            "evaluate (27 of 100) (training slots fill first; an env server of two environments or "
            "more gives at least one to evaluation until evaluation_slots are filled)",
        )
    ]
    attendance.admitted(2, arrival("vm:8", training=0, evaluation=1, offered=4), 0.0)
    attendance.ready(2, 0.0)
    assert heard.take() == [
        (
            "server_joined",
            "env server vm:8 joins with 1 environment: 0 to train (8 of 8 slots), 1 to evaluate "
            "(28 of 100); 4 were offered, and all slots are taken",
        )
    ]


def test_few_evaluation_slots_for_many_episodes_are_said_once_when_an_env_server_joins(
    heard: Heard,
) -> None:
    attendance = Attendance(heard, training_slots=8, evaluation_slots=20, evaluation_episodes=100)
    advice = []
    for number, evaluation in enumerate((1, 9, 10)):
        attendance.admitted(number, arrival(f"vm:{number}", evaluation=evaluation), 0.0)
        attendance.ready(number, 0.0)
        (_, text), *_ = heard.take()
        advice.append(text.partition("; 100 episodes to measure take ")[2])
    assert advice == ["100 in a row on 1 slot: offer more environments", "", ""]


def test_one_that_leaves_says_why_and_returns_under_its_name(
    attendance: Attendance, heard: Heard
) -> None:
    attendance.admitted(1, arrival(), 0.0)
    attendance.ready(1, 0.0)
    heard.take()
    attendance.left(1, "its connection ended", 10.0)
    attendance.admitted(2, arrival(training=1, evaluation=0), 12.0)
    (server,) = attendance.found(12.0).servers
    assert server.state == "building"
    attendance.ready(2, 12.5)
    assert heard.take() == [
        ("server_left", "env server vm:7 leaves with 35 environments: its connection ended"),
        (
            "server_returned",
            "env server vm:7 returns after 2.5 s with 1 environment: 1 to train (1 of 8 slots)",
        ),
    ]


def test_the_successor_of_one_that_was_killed_is_known_by_its_lease(
    attendance: Attendance, heard: Heard
) -> None:
    attendance.admitted(1, arrival(key=77), 0.0)
    attendance.failed(1, "no licence", 0.5)
    attendance.left(1, "an environment failed", 1.0)
    attendance.admitted(2, arrival("vm:8", key=78, earlier={3, 77}), 2.0)
    attendance.ready(2, 3.0)
    kinds = [kind for kind, _ in heard.events]
    assert kinds == ["environment_failed", "server_returned"]
    assert "returns in the place of vm:7 after 2.0 s" in heard.take()[-1][1]
    (server,) = attendance.found(3.0).servers
    assert (server.name, server.failures, server.last_failure) == ("vm:8", 1, "no licence")


def test_failures_are_counted_and_of_many_a_few_are_told(
    attendance: Attendance, heard: Heard
) -> None:
    for lease in range(10):
        now = float(lease * 5)
        attendance.admitted(lease, arrival(), now)
        attendance.ready(lease, now)
        attendance.failed(lease, "RuntimeError: the simulator lost its licence", now)
        attendance.left(lease, "an environment failed: ...", now)
    kinds, texts = zip(*heard.take(), strict=True)
    # That it returns is not told: the failure has said so.
    assert kinds == ("server_joined", *["environment_failed"] * 4)
    assert texts[1] == (
        "an environment of env server vm:7 failed (failure 1): RuntimeError: the simulator lost "
        "its licence"
    )
    assert ["(failure 3)" in texts[3], "(failure 9)" in texts[4]] == [True, True]
    found = attendance.found(0.0)
    assert (found.failures, found.servers[0].failures) == (10, 10)


def test_an_environment_that_its_env_server_goes_on_without_is_said_once(
    attendance: Attendance, heard: Heard
) -> None:
    attendance.admitted(1, arrival(), 0.0)
    attendance.failed(1, "no licence", 1.0)
    attendance.left(1, "an environment failed", 1.0)
    heard.take()
    shrunk = arrival(training=7, quarantined=1, quarantine="environment 5 is quarantined")
    for lease in (2, 3):
        attendance.admitted(lease, shrunk, 2.0)
        attendance.ready(lease, 2.0)
        found = attendance.found(2.0)
        assert (found.quarantined, found.servers[0].quarantined) == (1, 1)
        attendance.left(lease, "the env server is gone", 3.0)
    said = [text for kind, text in heard.take() if kind == "environment_quarantined"]
    assert said == ["env server vm:7 goes on without 1 environment: environment 5 is quarantined"]
    assert attendance.found(4.0).quarantined == 0


def test_a_group_hangs_from_the_moment_of_its_actions_and_not_of_the_look_that_found_it(
    attendance: Attendance, heard: Heard
) -> None:
    attendance.admitted(1, arrival(), 0.0)
    attendance.ready(1, 0.0)
    heard.take()
    owed = turn(3)._replace(owed_since=10.1)
    for now in (11.0, 10.0 + DEADLINE, 11.0 + DEADLINE):
        assert heard.take() == []
        attendance.look({1: [owed]}, now)
    ((kind, _),) = heard.take()
    assert kind == "server_hung"


def test_a_group_that_owes_a_step_for_too_long_hangs_until_it_steps(
    attendance: Attendance, heard: Heard
) -> None:
    attendance.admitted(1, arrival(), 0.0)
    attendance.ready(1, 0.0)
    heard.take()
    measuring = turn(9, is_training=False, is_owed=False)
    for now, sequence in ((0.0, 4), (1.0, 5), (2.0, 5), (61.0, 5)):
        attendance.look({1: [turn(sequence), turn(3 + sequence), measuring]}, now)
        assert heard.events == []
    found = attendance.found(61.0)
    assert found.training == Slots(total=8, live=8, waiting=8)
    assert found.evaluation == Slots(total=100, live=4)
    attendance.look({1: [turn(5), turn(8, is_owed=False), measuring]}, 61.5)
    assert heard.take() == [
        (
            "server_hung",
            "env server vm:7 hangs: group 0 (4 environments) sent no step for 60 s "
            "(serving.step_deadline_seconds); its slots stay taken",
        )
    ]
    found = attendance.found(61.5)
    assert found.training == Slots(total=8, live=8, waiting=4, hung=4)
    (server,) = found.servers
    assert (server.state, server.hung_groups, server.waiting_seconds) == ("hung", (0,), 60.5)
    attendance.look({1: [turn(6), turn(8), measuring]}, 62.0)
    assert [kind for kind, _ in heard.take()] == ["server_steps_again"]
    assert attendance.found(62.0).servers[0].state == "live"


def test_who_waits_for_the_learner_is_not_waited_for(attendance: Attendance, heard: Heard) -> None:
    attendance.admitted(1, arrival(), 0.0)
    attendance.ready(1, 0.0)
    for now in (0.0, 1000.0):
        attendance.look({1: [turn(5, is_owed=False)]}, now)
    assert attendance.found(1000.0).training == Slots(total=8, live=4)


def test_rates_are_those_between_two_looks(attendance: Attendance) -> None:
    attendance.admitted(1, arrival(), 0.0)
    attendance.ready(1, 0.0)
    attendance.look({1: [turn(10), turn(20)]}, 1.0)
    attendance.look({1: [turn(15), turn(30)]}, 3.0)
    assert attendance.found(3.0).servers[0].steps_per_second == 30.0


def test_the_same_refusal_is_said_once(attendance: Attendance, heard: Heard) -> None:
    for name in ("vm:7", "vm:7", "vm:8"):
        attendance.turned_away(name, "all 132 slots are leased")
    assert [text for _, text in heard.take()] == [
        "env server vm:7 is refused: all 132 slots are leased",
        "env server vm:8 is refused: all 132 slots are leased",
    ]
    attendance.turned_away("vm:8", "all 132 slots are leased", 40)
    assert heard.take() == []
    assert attendance.found(0.0).refused == 43


def test_one_that_cannot_build_the_environment_is_named_once(
    attendance: Attendance, heard: Heard
) -> None:
    attendance.admitted(1, arrival(), 0.0)
    attendance.refused(1, "no --allow-env")
    attendance.left(1, "no --allow-env", 0.0)
    assert heard.take() == [("server_refused", "env server vm:7 is refused: no --allow-env")]


def test_one_that_is_never_ready_leaves_before_it_was(attendance: Attendance, heard: Heard) -> None:
    attendance.admitted(1, arrival(), 0.0)
    attendance.left(1, "expected ready within 600 seconds", 600.0)
    assert heard.take() == [
        (
            "server_left",
            "env server vm:7 leaves before it was ready: expected ready within 600 seconds",
        )
    ]


def test_nobody_is_said_to_leave_when_the_learner_ends(
    attendance: Attendance, heard: Heard
) -> None:
    attendance.admitted(1, arrival(), 0.0)
    attendance.ready(1, 0.0)
    heard.take()
    attendance.closing("training is over")
    attendance.left(1, "training is over", 1.0)
    assert heard.take() == []


def test_two_of_one_name_are_told_apart(attendance: Attendance) -> None:
    for lease in (1, 2):
        attendance.admitted(lease, arrival(), 0.0)
    assert [server.name for server in attendance.found(0.0).servers] == ["vm:7", "vm:7#2"]


def test_the_book_of_those_that_left_does_not_grow(attendance: Attendance) -> None:
    for lease in range(1000):
        attendance.admitted(lease, arrival(f"vm:{lease}"), 0.0)
        attendance.left(lease, "gone", 0.0)
        attendance.turned_away(f"vm:{lease}", "full")
    assert len(attendance.found(0.0).servers) == 200
