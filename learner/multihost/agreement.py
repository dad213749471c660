"""What the hosts of a run agree on before each update: whether to learn, to save, or to end.

The main thread of each host says what it wants (`Hosts`), its learning thread votes, and all
compute the same decision of all votes (`decide`), by which the limiter of each changes alike.
"""

import contextlib
import queue
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from learner.multihost.peers import Peers
from learner.runtime.channel import RateLimiter
from learner.runtime.watchdog import exit_now
from learner.runtime.worker import ClosedError
from seedrl.errors import CheckpointError
from seedrl.exit_codes import ExitCode
from seedrl.replay.rate_limiter import Limiter

# How long a host waits for experience of its own before it votes without. The others, which may
# have some, wait for its vote; a round of votes costs a few tenths of a millisecond.
PAUSE_SECONDS = 0.005


class Vote(NamedTuple):
    """What one host knows and wants; or all of them together."""

    steps: int  # of its training slots since its vote before
    sequences: Sequence[int]  # that each of its shards holds, in the order of their devices
    is_able: bool  # to take part in an update: its programs are compiled
    wants_save: bool = False  # a checkpoint is due
    wants_end: Sequence[str] = ()  # kind and reason of the end; empty if the run is not over


def decide(votes: Sequence[Vote]) -> Vote:
    """The decision, the same on all hosts."""
    # Of several reasons the first host's counts.
    end = next((vote.wants_end for vote in votes if vote.wants_end), ())
    return Vote(
        steps=sum(vote.steps for vote in votes),
        sequences=[number for vote in votes for number in vote.sequences],
        # One host that is not able keeps all from learning; one that wants a save is enough.
        is_able=all(vote.is_able for vote in votes),
        # The end has a save of its own, after the last update.
        wants_save=any(vote.wants_save for vote in votes) and not end,
        wants_end=end,
    )


class Hosts:
    """The hosts that share a run, for one of them: what its main thread wants, what all agreed on.

    The main thread wants, the learning thread votes.
    """

    # Without a lock: attributes are replaced as a whole. The learning thread clears `wants_save`; a
    # save that is wanted while one is being agreed on is one save.

    def __init__(self, peers: Peers | None = None) -> None:
        """`peers`: the other hosts; by default there are none."""
        self.peers = peers or Peers()
        # Set by the main thread; see `Vote`.
        self.wants_save = False
        self.wants_end: Sequence[str] = ()
        # Set by the learning thread: why the run is over for all hosts, once that is agreed.
        self.end: Sequence[str] = ()
        # Taken by the learning thread where all agreed to save, for the main thread.
        self.snapshots: queue.SimpleQueue[Any] = queue.SimpleQueue()
        # Gives a snapshot of the learning thread's state; set when the session is built.
        self.take: Callable[[], Any] = lambda: None

    def taken(self) -> Any:
        """A snapshot that was taken, for the main thread; None if there is no other."""
        with contextlib.suppress(queue.Empty):
            return self.snapshots.get_nowait()
        return None

    def save(self) -> None:
        """For the learning thread, between two updates, at the same update on all hosts."""
        self.wants_save = False
        self.snapshots.put(self.take())

    @property
    def is_alone(self) -> bool:
        return self.peers.topology.process_count == 1

    @property
    def can_save(self) -> bool:
        """Whether there is somebody to save with: all hosts, at the same update."""
        return self.is_alone or bool(self.end)

    def leave(self) -> None:
        """After the last save: what is raised from here on is no failure to hosts that end, too."""
        if self.end:
            self.peers.leave()


def require_equal(peers: Peers, step: int, digest: str) -> None:
    """Ends the processes of all hosts if their states of update `step` differ in a bit.

    Called on all hosts before the first one saves, which writes for all: `digest` is of a host's
    own state. Raises CheckpointError if a host has left, so that nothing can be compared.
    """
    found = _gathered(peers, "save", [step, digest])
    if all(each == found[0] for each in found):
        return
    # No host takes the end of another one, which may come first, for a loss.
    peers.leave()
    texts = [
        f"host {index} {text[:16]} after {n:,} updates" for index, (n, text) in enumerate(found)
    ]
    exit_now(
        "learner: error: expected the same parameters on all hosts, bit for bit, got digests "
        f"{', '.join(texts)}; the run ends, and nothing of this is saved",
        ExitCode.INTERNAL,
    )


def save_once(peers: Peers, save: Callable[[], object]) -> None:
    """Calls `save` on the first host, which writes for all; returns on all hosts once it has.

    Raises what it raises, on the others as a CheckpointError.
    """
    # None may end as if all were saved while the first host can still be lost with the save.
    failure = None
    if peers.topology.is_first:
        try:
            save()
        except Exception as error:
            failure = error
    problem = _gathered(peers, "saved", "" if failure is None else str(failure))[0]
    if failure is not None:
        raise failure
    if problem:
        raise CheckpointError(f"host 0: {problem}")


def _gathered(peers: Peers, tag: str, value: Any) -> list[Any]:
    try:
        return peers.gather(tag, value)
    except ClosedError as error:
        raise CheckpointError("the hosts have parted: nothing can be saved") from error


class AgreedLimiter(RateLimiter):
    """A `RateLimiter` of a run on several hosts, whose value changes by what all have agreed on.

    So learning decides alike on all of them: by the steps of all, the sequences of all shards, and
    updates, which all take together. Pages are this host's own: where these decide (an on-policy
    queue), each host holds back its own acting, and learning waits for all.
    """

    def __init__(self, limiter: Limiter, hosts: Hosts):
        super().__init__(limiter)
        self._hosts = hosts
        # Takes the steps that other hosts report; called by the learning thread.
        self.on_others: Callable[[int], object] = lambda steps: None
        self.agreed_steps = 0  # of all hosts, in this session; the learning thread's
        # Guarded by `_changed`, as the limiter: acting counts, and the learning thread votes.
        self._steps = 0  # not yet reported
        self._sequences: Sequence[int] = ()

    @property
    def now(self) -> Limiter:
        with self._changed:
            return self._limiter.acted(self._steps)

    def acted(self, steps: int, pages: int = 0) -> None:
        with self._changed:
            self._steps += steps
            self._limiter = self._limiter.acted(0, pages)
            if self._expects_update():
                self._changed.notify_all()

    def holds(self, num_sequences: Sequence[int]) -> bool:
        # Only reported: all hosts take it over with the next decision.
        with self._changed:
            self._sequences = list(num_sequences)
            return self._limiter.is_ready

    def may_act(self) -> bool:
        # With this host's latest steps, of which the others do not know yet: so it is never further
        # ahead than a host alone would be, but for what others act within a round of votes.
        with self._changed:
            return not self._is_closed and self._limiter.acted(self._steps).may_act()

    def wait_to_learn(self, timeout_seconds: float) -> bool:
        """Votes with the other hosts; whether all of them take an update now.

        Waits a moment for experience that makes an update likely, and then for the others' votes.
        Once the run is over it waits and says no. Raises ClosedError if another host has left.
        """
        with self._changed:
            if self._hosts.end or self._is_closed:
                self._changed.wait(timeout_seconds)
                return False
            if timeout_seconds and not self._expects_update():
                self._changed.wait(min(timeout_seconds, PAUSE_SECONDS))
        decision = self._vote(is_able=True)
        with self._changed:
            return (
                decision.is_able
                and not decision.wants_end
                and not self._is_closed
                and self._limiter.may_learn()
            )

    def vote_unable(self) -> None:
        if not self._hosts.end:
            self._vote(is_able=False)

    def _vote(self, *, is_able: bool) -> Vote:
        # In the learning thread alone, which so votes in the same rounds on all hosts.
        with self._changed:
            steps, sequences = self._steps, self._sequences
        hosts = self._hosts
        own = Vote(steps, sequences, is_able, hosts.wants_save, hosts.wants_end)
        # Without the lock: acting goes on while this host waits for the others' votes.
        decision = decide([Vote(*vote) for vote in hosts.peers.gather("update", own)])
        with self._changed:
            # Of what was acted since, the others will know after the next vote.
            self._steps -= steps
            self._limiter = self._limiter.acted(decision.steps).holds(decision.sequences)
        # Schedules decay by this count, which is the same on all hosts at each update.
        self.agreed_steps += decision.steps
        self.on_others(decision.steps - steps)
        if decision.wants_end:
            # The main thread polls this. No vote follows: all hosts decide so in this same round.
            hosts.end = decision.wants_end
        elif decision.wants_save:
            hosts.save()
        return decision

    def _expects_update(self) -> bool:
        # If the other hosts have acted as much as this one.
        return self._limiter.acted(
            self._steps * self._hosts.peers.topology.process_count
        ).may_learn()
