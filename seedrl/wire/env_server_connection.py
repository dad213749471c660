"""A learner's connection to an env server: messages go and arrive, whatever carries them."""

from collections.abc import AsyncIterator, Callable
from typing import Protocol

from seedrl.wire.channel import Answer, Received
from seedrl.wire.framing import ActionsPayload, WireError
from seedrl.wire.local_link import Link
from seedrl.wire.seedrl_pb2 import Assign, FromEnvServer, FromLearner, Hello

# Beside one for each group: a group sends no step before it has the answer to its last one.
_SPARE_ANSWERS = 2


class Outbox(Protocol):
    """Takes what is to be sent over gRPC; from any thread, without waiting."""

    def put(self, item: Answer | Exception | None, /) -> None:
        """Queues it behind what was put before."""
        ...

    def qsize(self) -> int:
        """How many wait to be sent."""
        ...


class Receiver(Protocol):
    """Whom the messages are for. One thread at a time calls `receive`."""

    def receive(self, message: Received, /) -> bool:
        """Handles one message; False if it has ended the connection."""
        ...

    def hear(self) -> None:
        """Notes a sign of life, which is no message; any thread may call it."""
        ...

    def fail(self, error: Exception, /) -> None:
        """Ends the connection because of `error`."""
        ...

    def close(self) -> None:
        """Ends the connection: nothing more arrives."""
        ...


class EnvServerConnection:
    """Takes the link that Hello offers, says so in Assign, and uses it from then on.

    With env servers elsewhere everything goes over gRPC. Whoever is given the link to read closes
    it; any thread may end it before.

    Attributes:
      outbox: what goes over gRPC: messages, an error to end with, or None: end quietly.
      link: what all but the handshake and the end takes, if there is one.
      send_actions: sends the actions of a group, from any thread, without waiting; whether it
        could. If not, the env server is gone, or does not read.
    """

    def __init__(
        self,
        outbox: Outbox,
        connect_link: Callable[[str], Link | str] = lambda _: "links are not used here",
        on_end: Callable[[], object] = lambda: None,
    ) -> None:
        """Args not named here are attributes.

        Args:
          connect_link: gives the link of a name, or why there is none.
          on_end: called once, when it ends, by the thread that ends it; does not wait.
        """
        self.outbox = outbox
        self.link: Link | None = None
        self.send_actions: Callable[[ActionsPayload], bool] = self._queue_actions
        self._connect_link = connect_link
        self._on_end = on_end
        self._most_answers = _SPARE_ANSWERS
        self._offered = ""
        self._has_ended = False

    def hear(self, hello: Hello) -> None:
        """Takes what Hello says of how else the env server can be reached."""
        self._offered = hello.link

    def put(self, message: FromLearner) -> None:
        """Sends a message of the handshake. Assign is told whether the link was taken."""
        if message.HasField("assign"):
            self._most_answers = len(message.assign.groups) + _SPARE_ANSWERS
            self._take_link(message.assign)
        self.outbox.put(message)

    def end(self, error: Exception | None) -> None:
        """Ends it, once, with that error or quietly; does not wait."""
        if self._has_ended:
            return
        self._has_ended = True
        self.outbox.put(error)
        if self.link is not None:
            self.link.end()
        self._on_end()

    async def read(
        self,
        requests: AsyncIterator[Received],
        receiver: Receiver,
        watch: Callable[[Link, Receiver], None],
    ) -> None:
        """Brings what arrives to `receiver`; `watch` has to do so for the link, in its own thread.

        Returns once gRPC brings nothing more.
        """
        try:
            async for message in requests:
                if isinstance(message, FromEnvServer) and message.HasField("alive"):
                    receiver.hear()
                    continue
                if self.link is not None:
                    receiver.fail(WireError("expected all after Hello over the link"))
                    return
                is_open = receiver.receive(message)
                if self.link is not None:
                    watch(self.link, receiver)
                elif not is_open:
                    return
        finally:
            # A linked env server may be done with gRPC before what it sent over the link is read.
            if self.link is None:
                receiver.close()

    def _take_link(self, assign: Assign) -> None:
        reached = self._connect_link(self._offered)
        if isinstance(reached, str):
            assign.unlinked_reason = reached
            return
        assign.linked = True
        self.link, self.send_actions = reached, reached.send_actions
        # This connection may have been ended meanwhile: `end` sets the flag before it looks for a
        # link, and here it is the other way round, so one of the two ends the link.
        if self._has_ended:
            reached.end()

    def _queue_actions(self, payload: ActionsPayload) -> bool:
        if self.outbox.qsize() >= self._most_answers:
            return False
        self.outbox.put(payload)
        return True
