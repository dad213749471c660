"""Hosts that pace one run: all decide alike, and none holds the others up."""

import functools
import random
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from learner.multihost import agreement
from learner.multihost.agreement import AgreedLimiter, Hosts, require_equal, save_once
from learner.multihost.peers import Peers
from seedrl.errors import CheckpointError
from seedrl.exit_codes import ExitCode
from seedrl.replay.rate_limiter import Limiter, QueueLimiter, RatioLimiter
from tests.learner.multihost.linked import at_once, linked

BATCH_STEPS, RATIO, TOLERANCE = 8, 2.0, 2.0


def ratio() -> Limiter:
    return RatioLimiter(
        replay_ratio=RATIO, batch_steps=BATCH_STEPS, tolerance_updates=TOLERANCE, min_sequences=1
    )


def hosts_of(
    peers: Sequence[Peers], build: Callable[[], Limiter] = ratio
) -> tuple[list[AgreedLimiter], list[Hosts]]:
    hosts = [Hosts(each) for each in peers]
    limiters = [AgreedLimiter(build(), each) for each in hosts]
    for each in limiters:
        each.holds([0])
    return limiters, hosts


def voted(limiters: Sequence[AgreedLimiter]) -> list[bool]:
    """A round of votes; what each host does."""
    found = at_once([lambda each=each: each.wait_to_learn(0.0) for each in limiters])
    for each, learns in zip(limiters, found, strict=True):
        if learns:
            each.took()
            each.applied()
    return found


@pytest.mark.parametrize("count", [2, 4])
def test_random_hosts_always_decide_alike_and_keep_the_ratio(count: int) -> None:
    rng, updates, acted = random.Random(count), 0, 0
    with linked(count) as peers:
        limiters, _ = hosts_of(peers)
        for each in limiters:
            each.holds([1])
        voted(limiters)
        for _ in range(60):
            for each in limiters:
                if rng.random() < 0.5 and each.may_act():
                    steps = rng.randrange(8)
                    each.acted(steps)
                    acted += steps
            found = voted(limiters)
            assert len(set(found)) == 1
            updates += found[0]
            assert updates * BATCH_STEPS <= RATIO * acted
        while voted(limiters)[0]:
            updates += 1
        values = [each.now for each in limiters]
    assert values == values[:1] * count
    assert values[0].counts()["env_steps"] == acted
    assert updates == RATIO * acted // BATCH_STEPS > 10


def test_a_host_without_env_servers_keeps_nobody_from_learning_but_one_that_compiles_does() -> None:
    with linked(2) as peers:
        limiters, _ = hosts_of(peers)
        limiters[0].holds([5])
        limiters[1].holds([0])
        assert voted(limiters) == [False, False]
        limiters[0].acted(100)
        found = at_once([lambda: limiters[0].wait_to_learn(0.0), limiters[1].vote_unable])
        assert found == [False, None]
        assert voted(limiters) == [True, True]


def test_acting_waits_for_what_it_has_acted_itself_before_the_others_know() -> None:
    with linked(2) as peers:
        limiters, _ = hosts_of(peers)
        for each in limiters:
            each.holds([5])
        voted(limiters)
        limiters[0].acted(int(TOLERANCE * BATCH_STEPS / RATIO))
        assert [each.may_act() for each in limiters] == [False, True]
        voted(limiters)
        assert [each.may_act() for each in limiters] == [True, True]


def test_the_steps_of_other_hosts_are_counted_once() -> None:
    told: list[list[int]] = [[], []]
    with linked(2) as peers:
        limiters, _ = hosts_of(peers)
        for each, own in zip(limiters, told, strict=True):
            each.on_others = own.append
        limiters[1].acted(3)
        voted(limiters)
        voted(limiters)
        limiters[0].acted(2)  # not reported yet: no host's schedule may know of it
    assert told == [[3, 0], [0, 0]]
    assert [each.agreed_steps for each in limiters] == [3, 3]


def test_a_queue_holds_back_its_own_host_and_learning_waits_for_all() -> None:
    with linked(2) as peers:
        limiters, _ = hosts_of(
            peers, lambda: QueueLimiter(batch_per_device=2, num_devices=1, ahead_updates=2)
        )
        limiters[0].acted(10, 4)
        limiters[0].holds([4])
        assert voted(limiters) == [False, False]
        assert [each.may_act() for each in limiters] == [False, True]
        limiters[1].acted(10, 2)
        limiters[1].holds([2])
        assert voted(limiters) == [True, True]
        assert [each.may_act() for each in limiters] == [True, True]


def test_all_take_a_snapshot_in_the_same_round() -> None:
    with linked(2) as peers:
        limiters, hosts = hosts_of(peers)
        for number, each in enumerate(hosts):
            each.take = lambda number=number: f"snapshot of {number}"
        hosts[0].wants_save = True
        voted(limiters)
        voted(limiters)
    assert [each.taken() for each in hosts] == ["snapshot of 0", "snapshot of 1"]
    assert [each.taken() for each in hosts] == [None, None]


def test_after_the_end_nobody_learns_or_waits_for_votes() -> None:
    with linked(2) as peers:
        limiters, hosts = hosts_of(peers)
        for each in limiters:
            each.holds([5])
        voted(limiters)
        limiters[0].acted(100)
        hosts[1].wants_end = ("stopped", "by SIGTERM")
        assert voted(limiters) == [False, False]
        assert [each.end for each in hosts] == [["stopped", "by SIGTERM"]] * 2
        assert not limiters[0].wait_to_learn(0.0)
        limiters[0].vote_unable()


@pytest.mark.parametrize("slow", [0, 1, 2])
def test_parameters_that_differ_in_a_bit_end_every_host_and_none_takes_that_for_a_loss(
    monkeypatch: pytest.MonkeyPatch, slow: int
) -> None:
    losses: list[str] = []
    codes: dict[int, ExitCode] = {}
    host_of_thread: dict[int, Peers] = {}

    def end(text: str, code: ExitCode) -> None:
        peers = host_of_thread[threading.get_ident()]
        codes[peers.topology.process_index] = code
        peers.close()
        raise SystemExit

    monkeypatch.setattr(agreement, "exit_now", end)

    class Slow(Peers):
        def gather(self, tag: str, *arguments: Any) -> list[Any]:
            found = super().gather(tag, *arguments)
            threading.Event().wait(0.2)
            return found

    def one(peers: Peers) -> None:
        host_of_thread[threading.get_ident()] = peers
        with pytest.raises(SystemExit):
            require_equal(peers, 7, f"{peers.topology.process_index // 2}")

    with linked(3, losses) as hosts:
        hosts[slow].__class__ = Slow
        at_once([functools.partial(one, peers) for peers in hosts])
    assert codes == dict.fromkeys(range(3), ExitCode.INTERNAL)
    assert losses == []


@pytest.mark.parametrize("failure", [None, CheckpointError("disk full"), TypeError("a defect")])
def test_no_host_ends_before_the_first_one_has_saved_for_all(failure: Exception | None) -> None:
    """It ended with 0; where the first one then died, its scheduler restarted that one alone."""
    is_saved = threading.Event()

    def save() -> None:
        assert not threading.Event().wait(0.2) and not others
        is_saved.set()
        if failure is not None:
            raise failure

    others: list[Exception | None] = []

    def one(peers: Peers) -> Exception | None:
        found = None
        try:
            save_once(peers, save)
        except Exception as error:
            found = error
        if not peers.topology.is_first:
            others.append(found)
        assert is_saved.is_set()
        return found

    with linked(3) as hosts:
        found = at_once([functools.partial(one, peers) for peers in hosts])
    assert found[0] is failure
    assert [str(each) for each in others] == [f"host 0: {failure}" if failure else "None"] * 2


def test_equal_parameters_are_saved_and_none_after_a_host_has_left() -> None:
    with linked(2) as hosts:
        at_once([functools.partial(require_equal, peers, 7, "the same") for peers in hosts])
        hosts[1].leave()
        with pytest.raises(CheckpointError):
            require_equal(hosts[0], 8, "the same")
