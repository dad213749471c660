"""An env server's connection to its learner: messages go and arrive, whatever carries them."""

import collections
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
from seedrl.wire.local_link import Link, listen
from seedrl.wire.seedrl_pb2 import Alive, FromEnvServer, FromLearner
from seedrl.wire.version import MINOR_OF_ALIVE

# The learner has connected before it said so.
_LINK_SECONDS = 5.0


# How often to look whether something was sent; what is promised is twice that.
_LOOK_SECONDS = 0.5
_LONGEST_PROMISE_SECONDS = 20.0
# Longer ones are not worth another copy.
_LONGEST_JOINED_BYTES = 2**18
_ALIVE = FromEnvServer(alive=Alive())


class Promise:
    """How often this process can say that it is there; of its whole life, and all its connections.

    What steps an environment may keep the interpreter for itself for as long, and then no thread
    can say anything: what was seen of that is allowed for.
    """

    def __init__(self) -> None:
        self._longest_seconds = 0.0

    @property
    def seconds(self) -> float:
        """What can be promised; 0 for nothing."""
        seconds = 2 * (_LOOK_SECONDS + self._longest_seconds)
        return seconds if seconds <= _LONGEST_PROMISE_SECONDS else 0.0

    def woke_late(self, seconds: float, worked_seconds: float) -> None:
        """A look was late by that; the process has computed for so long meanwhile.

        One that was suspended has not computed: that is what a learner shall notice.
        """
        if worked_seconds >= seconds / 2:
            self._longest_seconds = max(self._longest_seconds, seconds)


class LinkMissingError(Exception):
    """The learner has said that it took the link, but cannot be seen there."""


class LearnerConnection:
    """Offers a learner of this host a link in Hello, and uses it from an Assign on that takes it.

    Until then, and with learners elsewhere, everything goes over gRPC. Owns the channel, the call,
    the listener and the link from its creation to `close`. One thread receives and closes; any may
    send, `end_within` and `cancel`.
    """

    def __init__(
        self,
        address: str,
        *,
        max_message_bytes: int,
        local_link: bool = True,
        token: str = "",
        credentials: grpc.ChannelCredentials | None = None,
        promise: Promise | None = None,
    ) -> None:
        """Does not wait for the learner.

        Args:
          address: the learner's, `host:port` or `unix:/path`.
          max_message_bytes: the longest message that is sent.
          local_link: whether to offer a link.
          token: goes with the call as `Bearer <token>`; "" for none.
          credentials: of TLS; None for a connection without.
          promise: what is promised to the learner; None for nothing.
        """
        self._max_message_bytes = max_message_bytes
        self._resources = contextlib.ExitStack()
        self._listener = listen() if local_link else None
        if self._listener is not None:
            self._resources.enter_context(contextlib.closing(self._listener))
        self._link: Link | None = None
        self._promise = promise
        self._learner_minor = 0
        self._longest_joined = min(max_message_bytes, _LONGEST_JOINED_BYTES)
        self._has_sent = False
        self._has_closed = threading.Event()
        # gRPC reads it in a thread of its own; None ends what is sent.
        self._outgoing: queue.SimpleQueue[ToLearner | None] = queue.SimpleQueue()
        channel = self._resources.enter_context(
            connect(address, max_message_bytes=max_message_bytes, credentials=credentials)
        )
        metadata = ((TOKEN_KEY, f"Bearer {token}"),) if token else ()
        self._call: Any = connect_method(channel)(self._to_send(), metadata=metadata)

    def put(self, message: ToLearner) -> None:
        """Sends `message` after those before it. Raises WireError if it is too long for a link."""
        self._has_sent = True
        if isinstance(message, FromEnvServer) and message.HasField("hello"):
            message.hello.link = "" if self._listener is None else self._listener.name
            message.hello.alive_seconds = self._promised_seconds()
        if self._link is not None:
            self._send_over(self._link, message)
        else:
            self._outgoing.put(message)
        # Behind Ready, which has to be the first message after Assign.
        if isinstance(message, FromEnvServer) and message.HasField("ready"):
            self._keep_promise()

    def _to_send(self) -> Iterator[ToLearner]:
        """What is put, until None ends that; gRPC takes it in a thread of its own.

        Steps of several groups that wait by then leave in one message, for a message costs more
        than what is in it. None waits for another: while a group takes its time, the steps of those
        before it leave.
        """
        while True:
            waiting = collections.deque([self._outgoing.get()])
            while self._outgoing.qsize():  # nobody else takes any
                waiting.append(self._outgoing.get())
            while waiting:
                message = waiting.popleft()
                if message is None:
                    return
                if isinstance(message, FramedStep):
                    message = self._joined(message, waiting)
                yield message

    def _joined(
        self, first: FramedStep, waiting: collections.deque[ToLearner | None]
    ) -> FramedStep:
        """One message of `first` and the steps that stand right behind it, as far as they fit."""
        steps, room = [first], self._longest_joined - len(first.message)
        while waiting and isinstance(step := waiting[0], FramedStep) and len(step.message) <= room:
            room -= len(step.message)
            steps.append(step)
            waiting.popleft()
        return join_steps(steps)

    def _promised_seconds(self) -> float:
        return 0.0 if self._promise is None else self._promise.seconds

    def _keep_promise(self) -> None:
        if self._promised_seconds() and self._learner_minor >= MINOR_OF_ALIVE:
            threading.Thread(target=self._say_alive, name="alive", daemon=True).start()

    def messages(self) -> Iterator[ToEnvServer | WireError]:
        """What the learner sends, until it ends the stream.

        Raises grpc.RpcError if it ends with a status other than OK, or is lost; LinkMissingError.
        """
        for message in self._call:
            if isinstance(message, FromLearner) and message.HasField("assign"):
                self._learner_minor = message.assign.minor
                limit = message.assign.max_message_bytes or self._longest_joined
                self._longest_joined = min(self._longest_joined, limit)
            if isinstance(message, FromLearner) and message.assign.linked:
                link = self._accept()
                yield message
                yield from map(receive_from_learner, link.receive())
            else:
                yield message

    def end_within(self, seconds: float) -> threading.Timer:
        """Ends what is sent, and gives the learner `seconds` to end the stream thereupon.

        That ends `messages`. What is returned, once cancelled, leaves the learner all the time.
        """
        self._outgoing.put(None)
        deadline = threading.Timer(seconds, self._call.cancel)
        deadline.daemon = True
        deadline.start()
        return deadline

    def await_end(self, seconds: float) -> None:
        """Like `end_within`, for who receives: reads on until the end, and returns then."""
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
        self._has_closed.set()
        self._outgoing.put(None)
        self._call.cancel()
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
            raise LinkMissingError("it did not use the link that it took")
        self._link = self._resources.enter_context(contextlib.closing(accepted))
        # The end of the stream is that of the link; why, the stream says.
        if not self._call.add_callback(self._link.end):
            self._link.end()
        return self._link

    def _say_alive(self) -> None:
        """Sends Alive whenever nothing else was sent for a while. Runs in a thread of its own."""
        assert self._promise is not None
        try:
            while True:
                due, worked = time.monotonic() + _LOOK_SECONDS, time.process_time()
                if self._has_closed.wait(_LOOK_SECONDS):
                    return
                if not self._has_sent:
                    self._outgoing.put(_ALIVE)
                self._has_sent = False
                self._promise.woke_late(time.monotonic() - due, time.process_time() - worked)
        finally:  # a promise that nobody keeps any more; the next connection makes a new one
            self._call.cancel()

    def _send_over(self, link: Link, message: ToLearner) -> None:
        data = encode_from_env_server(message)
        if len(data) > self._max_message_bytes:
            raise WireError(
                f"expected messages of at most {self._max_message_bytes} bytes, got one of "
                f"{len(data)}; raise --max-message-bytes or offer fewer environments"
            )
        link.send(data)
