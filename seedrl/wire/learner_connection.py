"""An env server's connection to its learner: over gRPC, or over a link from Assign on.

Threads: one receives, and closes; any may send, `end_within` and `cancel`. gRPC has two more for a
call: one takes messages from the queue here, the other one takes gRPC's events.
"""

import contextlib
import queue
import threading
import time
from collections.abc import Iterator
from typing import Any, Self

import grpc

from seedrl.wire.channel import TOKEN_KEY, connect, connect_method, longest_received
from seedrl.wire.framing import (
    FramedStep,
    ToEnvServer,
    ToLearner,
    WireError,
    encode_from_env_server,
    join_steps,
    receive_from_learner,
)
from seedrl.wire.local_link import Link, UnusableLinkError, listen
from seedrl.wire.seedrl_pb2 import FromEnvServer, FromLearner

# The learner has connected before it says so in Assign.
_LINK_SECONDS = 5.0
# Longer steps are not worth another copy.
_LONGEST_JOINED_BYTES = 2**18
# A step that is ready so soon after its actions waits for those of groups that were answered with
# it: to be on its way so much earlier is worth less than the cost of another message.
_TOGETHER_SECONDS = 0.0002


class LearnerConnection:
    """Offers a learner of this host a link in Hello, and uses it from an Assign on that takes it.

    Until then, and with learners elsewhere, everything goes over gRPC. Owns the channel, the call,
    the listener and the link from its creation to `close`.
    """

    def __init__(
        self,
        address: str,
        *,
        max_message_bytes: int,
        local_link: bool = True,
        token: str = "",
        credentials: grpc.ChannelCredentials | None = None,
    ) -> None:
        """Does not wait for the learner.

        Args:
          address: the learner's, `host:port` or `unix:/path`.
          max_message_bytes: the longest message that is sent.
          local_link: whether to offer a link.
          token: goes with the call as `Bearer <token>`; "" for none.
          credentials: of TLS; None for a connection without.
        """
        self._max_message_bytes = max_message_bytes
        self._resources = contextlib.ExitStack()
        self._listener = listen() if local_link else None
        if self._listener is not None:
            self._resources.enter_context(contextlib.closing(self._listener))
        self._link: Link | None = None
        self._outgoing: queue.SimpleQueue[ToLearner | None] = queue.SimpleQueue()
        # The receiving thread's alone: steps that may leave together, and until when.
        self._receiver, self._together_until = 0, 0.0
        self._together: list[FramedStep] = []
        self._longest_joined = min(max_message_bytes, _LONGEST_JOINED_BYTES)
        channel = self._resources.enter_context(
            connect(address, max_message_bytes=max_message_bytes, credentials=credentials)
        )
        metadata = ((TOKEN_KEY, f"Bearer {token}"),) if token else ()
        to_send = iter(self._outgoing.get, None)
        self._call: Any = connect_method(channel)(to_send, metadata=metadata)
        # Before the channel, which does not free a call that is open.
        self._resources.callback(self._call.cancel)

    def put(self, message: ToLearner) -> None:
        """Sends `message` after those before it. Raises WireError if it is too long for a link."""
        if isinstance(message, FromEnvServer) and message.HasField("hello"):
            message.hello.link = "" if self._listener is None else self._listener.name
        if self._link is not None:
            self._send_over(self._link, message)
        elif isinstance(message, FramedStep) and threading.get_ident() == self._receiver:
            self._together.append(message)
            # While one group takes its time, the steps of those before it leave.
            if time.monotonic() >= self._together_until:
                self._flush()
        else:
            self._flush()
            self._outgoing.put(message)

    def _flush(self) -> None:
        """Sends the steps that waited for one another, in as few messages as they fit into."""
        if threading.get_ident() != self._receiver:
            return  # whose steps they are
        waiting, self._together = self._together, []
        while waiting:
            joined, room = [waiting.pop(0)], self._longest_joined
            room -= len(joined[0].message)
            while waiting and len(waiting[0].message) <= room:
                joined.append(waiting.pop(0))
                room -= len(joined[-1].message)
            self._outgoing.put(join_steps(joined))

    def messages(self) -> Iterator[ToEnvServer | WireError]:
        """Messages of the learner until it ends the stream.

        Raises grpc.RpcError if it ends with a status other than OK, or is lost; UnusableLinkError.
        """
        self._receiver = threading.get_ident()
        for message in self._call:
            if isinstance(message, FromLearner) and message.HasField("assign"):
                limit = message.assign.max_message_bytes or self._longest_joined
                self._longest_joined = min(self._longest_joined, limit)
                if message.assign.linked:
                    link = self._accept()
                    yield message
                    yield from map(receive_from_learner, link.receive())
                    continue
            self._together_until = time.monotonic() + _TOGETHER_SECONDS
            yield message
            self._flush()

    def end_within(self, seconds: float) -> threading.Timer:
        """Ends what is sent, and gives the learner `seconds` to end the stream thereupon.

        That ends `messages`. The timer that is returned, once cancelled, leaves it all the time.
        """
        self._flush()
        self._outgoing.put(None)
        deadline = threading.Timer(seconds, self._call.cancel)
        deadline.daemon = True
        deadline.start()
        return deadline

    def await_end(self, seconds: float) -> None:
        """Like `end_within`, in the receiving thread: reads on until the end, and returns then."""
        deadline = self.end_within(seconds)
        try:
            for _ in self._call:
                pass
        except grpc.RpcError:
            pass
        finally:
            deadline.cancel()

    def cancel(self) -> None:
        """Breaks the connection: `messages` ends, with an error."""
        self._call.cancel()

    def close(self) -> None:
        """Ends the connection, and frees what it holds."""
        self._outgoing.put(None)
        self._resources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> Link:
        accepted = None
        if self._listener is not None:
            longest = longest_received(self._max_message_bytes)
            accepted = self._listener.accept(_LINK_SECONDS, longest)
        if accepted is None:
            raise UnusableLinkError("it did not use the link that it took")
        self._link = self._resources.enter_context(contextlib.closing(accepted))
        # The end of the stream is that of the link; why, the stream says.
        if not self._call.add_callback(self._link.end):
            self._link.end()
        return self._link

    def _send_over(self, link: Link, message: ToLearner) -> None:
        data = encode_from_env_server(message)
        if len(data) > self._max_message_bytes:
            raise WireError(
                f"expected messages of at most {self._max_message_bytes} bytes, got one of "
                f"{len(data)}; raise --max-message-bytes or offer fewer environments"
            )
        link.send(data)
