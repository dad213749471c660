"""The hub: the serving core behind a lock, and the wait for something to do."""

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from learner.serving.core import Batch, Serving
from seedrl.config import EnvironmentConfig
from seedrl.specs import EnvSpec
from seedrl.wire.payload import pack_actions

if TYPE_CHECKING:
    from learner.serving.connection import Connection, EndError


class Hub:
    """Where streams and acting meet; its methods may be called from any thread.

    It knows no transport, and time only as its clock: whoever brings messages to its streams and
    takes them from there, gRPC or a simulator, runs this same code.

    Attributes:
      changed: guards everything here and the serving core; notified at every change.
      serving: the core.
      environment: what env servers are told to build.
      clock: seconds, monotonic.
      spec: what it looks like: given (from a checkpoint), or taken from the first Ready.
      is_agreed: whether an env server has come whose environment is of this spec.
      refused: why the first env server that could not build it, or before there was agreement built
        another one, is of no use.
      streams: open streams by the number of their lease.
      ended: streams of experience that were cut and not yet reported.
      is_open: False once the learner is stopping.
    """

    def __init__(
        self,
        serving: Serving,
        environment: EnvironmentConfig,
        *,
        spec: EnvSpec | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.changed = threading.Condition()
        self.serving = serving
        self.environment = environment
        self.clock = clock
        self.spec = spec
        self.is_agreed = False
        self.refused: str | None = None
        self.streams: dict[int, Connection] = {}
        self.ended: list[int] = []
        self.is_open = True
        self._is_woken = False

    def wait_for_spec(self, timeout: float) -> EnvSpec | None:
        """Waits for a first env server's spec; None if none came in time."""
        with self.changed:
            self.changed.wait_for(lambda: self.spec is not None or self.refused, timeout)
            return self.spec

    def wait_for_agreement(self, timeout: float) -> bool:
        """Waits for an env server with an environment of the spec; whether one came in time."""
        with self.changed:
            self.changed.wait_for(lambda: self.is_agreed or self.refused, timeout)
            return self.is_agreed

    def agree(self, spec: EnvSpec, peer: str) -> list[str]:
        """Takes what an env server offers; one line per field that differs, and then it is refused.

        Holding `changed` is up to the caller.
        """
        difference = [] if self.spec is None else self.spec.difference(spec)
        if not difference:
            self.spec, self.is_agreed = spec, True
        elif not self.is_agreed:
            self.refuse(
                f"env server {peer} has another environment than the checkpoint: "
                f"{'; '.join(difference)}; restore the config or start a new workdir"
            )
        self.changed.notify_all()
        return difference

    def refuse(self, reason: str) -> None:
        """Notes why an env server is of no use; of several the first. Needs `changed` as above."""
        self.refused = self.refused or reason
        self.changed.notify_all()

    @property
    def refusal(self) -> str | None:
        """Why an env server was of no use; see `refused`."""
        with self.changed:
            return self.refused

    def wake(self) -> None:
        """Makes `next_batch` return, so that its caller looks again at what it allows.

        A call that comes before `next_batch` counts for the next one: none is lost.
        """
        with self.changed:
            self._is_woken = True
            self.changed.notify_all()

    def next_batch(
        self, *, is_training_allowed: bool, is_evaluation_allowed: bool, timeout: float
    ) -> Batch | None:
        """The next due batch of an allowed role; None if none was due in time, or after `wake`."""
        serving = self.serving
        roles = [False] * is_training_allowed + [True] * is_evaluation_allowed
        deadline = self.clock() + timeout
        with self.changed:
            while True:
                now = self.clock()
                waits = [(serving.seconds_until_due(now, evaluation=role), role) for role in roles]
                due = [role for wait, role in waits if wait == 0.0]
                if due:
                    # First come, first served: neither role starves the other.
                    role = min(due, key=lambda role: serving.oldest_arrival(evaluation=role))
                    return serving.take(evaluation=role)
                if now >= deadline or self._is_woken:
                    self._is_woken = False
                    return None
                soonest = min([deadline, *(now + wait for wait, _ in waits if wait is not None)])
                self.changed.wait(soonest - now)

    def make_room(self) -> None:
        """Uses slots that have become free, if a lease is smaller than was asked for.

        That happens to an env server that comes while another's end has not been noticed. A lease
        never grows: its stream ends, and the env server comes back for a larger one.
        """
        with self.changed:
            missing = {stream.num_missing: stream for stream in self.streams.values()}
            if self.is_open and self.serving.slots.num_free and max(missing, default=0):
                missing[max(missing)].close_for_more()

    def answer(self, batch: Batch, actions: np.ndarray) -> None:
        """Sends `actions [B] int32` to whom they belong, and releases the batch's slots."""
        with self.changed:
            open_groups = set(map(id, self.serving.answered(batch)))
            if len(open_groups) < len(batch.pending):
                self.make_room()  # in the slots of leases that have ended meanwhile
            streams = dict(self.streams)
        for item, rows in zip(batch.pending, batch.rows, strict=True):
            group = item.group
            stream = streams.get(group.lease.number)
            if stream is not None and id(group) in open_groups:
                stream.send_actions(pack_actions(group.number, item.sequence, actions[rows]))

    def take_ended(self) -> list[int]:
        """Streams of experience that were cut since the last call."""
        with self.changed:
            slots = self.serving.slots
            ended, self.ended, slots.cut = [*self.ended, *slots.cut], [], []
            return ended

    def live_slots(self, *, evaluation: bool) -> np.ndarray:
        """Slots of this role whose stream is open, `[L] int32`, sorted."""
        with self.changed:
            return self.serving.live_slots(evaluation=evaluation)

    def ledger(self) -> dict[str, int]:
        """The accounts of the serving core, all at one moment; see `learner.serving.ledger`."""
        with self.changed:
            return self.serving.accounts()

    def settlement_errors(self) -> list[str]:
        """What does not fit between what env servers sent and what arrived, one a line."""
        with self.changed:
            return list(self.serving.settlement.errors)

    def epochs(self) -> list[int]:
        """Leases so far of each slot."""
        with self.changed:
            return [int(epoch) for epoch in self.serving.slots.epochs]

    def end_superseded(self, key: int) -> None:
        """Ends the stream of a lease that is over for its env server, if it is still open here."""
        with self.changed:
            for stream in list(self.streams.values()):
                if stream.holds(key):
                    stream.close()

    def streams_state(self) -> dict[str, Any]:
        """Where every stream of experience is; see `Serving.state`."""
        with self.changed:
            return self.serving.state()

    def close(self, end: "EndError | None") -> None:
        """Admits nobody any more, and ends every stream with `end`."""
        with self.changed:
            self.is_open = False
            for stream in self.streams.values():
                stream.outbox.put(end)
            self.changed.notify_all()
