"""The registry of env servers: their states, and the events about them."""

from typing import Any

import pytest

from learner.report.env_servers import EnvServerRegistry, Turn, waited_for
from learner.report.status import EnvServerStatus, Slots
from tests.learner.report.listener import Heard

DEADLINE = 60.0


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def registry(heard: Heard) -> EnvServerRegistry:
    return EnvServerRegistry(
        heard, training_slots=8, evaluation_slots=100, step_deadline_seconds=DEADLINE
    )


def joined(
    registry: EnvServerRegistry,
    lease: int,
    now: float = 0.0,
    *,
    is_ready: bool = True,
    **given: Any,
) -> None:
    """Admits an env server, by default with 8 environments to train and 27 to evaluate."""
    numbers = {"training_slots": 8, "evaluation_slots": 27} | given
    why, name = numbers.pop("why_disabled", ""), numbers.pop("name", "vm:7")
    number = numbers["training_slots"] + numbers["evaluation_slots"]
    offered = numbers.pop("offered", number)
    status = EnvServerStatus(
        name=name,
        host="vm",
        state="building",
        since_seconds=now,
        groups=3,
        environments=number,
        **numbers,
    )
    registry.admitted(lease, status, offered=offered, why_disabled=why)
    if is_ready:
        registry.ready(lease, now)


def turn(sequence: int, *, is_owed: bool = True, is_training: bool = True) -> Turn:
    return Turn(4, is_training, sequence, is_owed)


def server_of(registry: EnvServerRegistry, now: float) -> EnvServerStatus:
    (server,) = registry.found(now).servers
    return server


def test_an_env_server_joins_once_it_is_ready(registry: EnvServerRegistry, heard: Heard) -> None:
    joined(registry, 1, is_ready=False)
    assert heard.take() == [] and server_of(registry, 5.0).state == "building"
    registry.ready(1, 9.0)
    (event,) = heard.take()
    assert event.kind == "server_joined"
    expected = {"server": "vm:7", "training": 8, "evaluation": 27, "away_seconds": None}
    assert event.fields == expected
    assert "8 of 8 and 27 of 100" in event.text
    joined(registry, 2, name="vm:8", training_slots=0, evaluation_slots=1, offered=4)
    assert "4 were offered" in heard.take()[0].text


def test_one_that_left_returns_under_its_name(registry: EnvServerRegistry, heard: Heard) -> None:
    joined(registry, 1)
    heard.take()
    registry.left(1, "its connection ended", 10.0)
    joined(registry, 2, 12.5, training_slots=1, evaluation_slots=0)
    left, returned = heard.take()
    assert left.kind == "server_left" and left.fields["reason"] == "its connection ended"
    assert (returned.kind, returned.fields["away_seconds"]) == ("server_joined", 2.5)


def test_failures_are_counted_and_of_many_a_few_are_reported(
    registry: EnvServerRegistry, heard: Heard
) -> None:
    for lease in range(10):
        now = float(lease * 10)
        joined(registry, lease, now)
        registry.failed(lease, "RuntimeError: the simulator lost its licence", now)
        registry.left(lease, "an environment failed: ...", now)
    failed = [each for each in heard.take() if each.kind != "server_joined"]
    assert {each.kind for each in failed} == {"environment_failed"}
    assert [each.fields["failures"] for each in failed] == [1, 2, 3, 9]
    assert "lost its licence" in failed[0].text
    found = registry.found(0.0)
    assert (found.failures, found.servers[0].failures) == (10, 10)


def test_a_disabled_environment_is_reported_once(registry: EnvServerRegistry, heard: Heard) -> None:
    joined(registry, 1)
    registry.failed(1, "no licence", 1.0)
    registry.left(1, "an environment failed", 1.0)
    heard.take()
    for lease in (2, 3):
        joined(registry, lease, 2.0, training_slots=7, quarantined=1, why_disabled="environment 5")
        found = registry.found(2.0)
        assert (found.quarantined, found.servers[0].quarantined) == (1, 1)
        registry.left(lease, "the env server is gone", 3.0)
    (disabled,) = [each for each in heard.take() if each.kind == "environment_failed"]
    assert (disabled.fields["disabled"], disabled.fields["reason"]) == (1, "environment 5")
    assert registry.found(4.0).quarantined == 0


def test_a_group_that_owes_a_step_for_too_long_hangs_until_it_steps(
    registry: EnvServerRegistry, heard: Heard
) -> None:
    joined(registry, 1)
    heard.take()
    evaluating = turn(9, is_training=False, is_owed=False)
    late, soon = turn(5), turn(8)._replace(owed_since=1.0)
    for now in (0.0, 1.0, 2.0, DEADLINE):
        registry.look({1: [late, soon, evaluating]}, now)
        assert heard.events == []
    found = registry.found(DEADLINE)
    assert waited_for(found) == "no step from vm:7"  # as after 2 s: it is one reason
    assert found.training == Slots(total=8, live=8, waiting=8)
    assert found.evaluation == Slots(total=100, live=4)
    registry.look({1: [turn(5), turn(8, is_owed=False), evaluating]}, 61.5)
    (hangs,) = heard.take()
    assert hangs.is_problem and hangs.fields["groups"] == [0]
    assert registry.found(61.5).training == Slots(total=8, live=8, waiting=4, hung=4)
    server = server_of(registry, 61.5)
    assert (server.state, server.hung_groups, server.waiting_seconds) == ("hung", (0,), 61.5)
    registry.look(
        {1: [turn(6)._replace(owed_since=61.9), soon._replace(owed_since=61.9), evaluating]}, 62.0
    )
    (steps,) = heard.take()
    assert not steps.is_problem and server_of(registry, 62.0).state == "live"
    # Of all environments, and of those that train.
    registry.look({1: [turn(7), turn(9), turn(12, is_training=False)]}, 63.0)
    server = server_of(registry, 63.0)
    assert (server.steps_per_second, server.training_steps_per_second) == (20.0, 8.0)


def test_the_same_refusal_is_reported_once(registry: EnvServerRegistry, heard: Heard) -> None:
    for name in ("vm:7", "vm:7", "vm:8"):
        registry.turned_away(name, "all 132 slots are leased")
    assert [event.fields["server"] for event in heard.take()] == ["vm:7"]
    joined(registry, 1, is_ready=False)
    registry.left(1, "no --allow-env", 0.0, is_refused=True)
    assert [event.kind for event in heard.take()] == ["server_refused"]
    assert registry.found(0.0).refused == 4


def test_those_that_leave_at_the_end_are_not_reported_and_bounded(
    registry: EnvServerRegistry, heard: Heard
) -> None:
    registry.closing()
    for lease in range(300):
        joined(registry, lease, name=f"vm:{lease}")
        registry.left(lease, "gone", 0.0)
    assert heard.events == [] and len(registry.found(0.0).servers) == 50


def test_a_batch_of_all_slots_waits_for_those_that_are_not_filled(
    registry: EnvServerRegistry,
) -> None:
    joined(registry, 1, training_slots=5, quarantined=2, why_disabled="environment 5: boom")
    registry.look({1: [turn(4), turn(4)._replace(environments=1)]}, 0.5)
    found = registry.found(0.5)
    assert waited_for(found) == ""  # it acts on those that there are
    # All but those of disabled environments.
    text = "learning.schedule needs 6 training slots, 5 are filled; 2 environments disabled"
    assert waited_for(found, needs_all=True).startswith(text)
    assert waited_for(found._replace(quarantined=3), needs_all=True) == ""
