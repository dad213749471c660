"""An env server's connection to its learner: messages go and arrive, whatever carries them."""

import collections
import contextlib
import queue
import threading
import time
from collections.abc import Iterator
from typing import Self

import grpc

from seedrl.wire.channel import TOKEN_KEY, connect, longest_received
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
from seedrl.wire.seedrl_pb2 import Alive, FromEnvServer, FromLearner
from seedrl.wire.stream_call import open_call
from seedrl.wire.version import MINOR_OF_ALIVE

# The learner has connected before it said so.
_LINK_SECONDS = 5.0


# How often to look whether something was sent; what is promised is twice that.
_LOOK_SECONDS = 0.5
_LONGEST_PROMISE_SECONDS = 20.0
# Longer ones are not worth another copy.
_LONGEST_JOINED_BYTES = 2**18
# A step that is ready so soon after its actions waits for those of groups that were answered with
# it: to be on its way so much earlier is worth less than what another message costs.
_TOGETHER_SECONDS = 0.0002
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


class Outgoing:
    """What is to be sent over gRPC: any thread puts, one at a time takes.

    Steps of several groups that wait by then leave in one message, for a message costs more than
    what is in it.

    Attributes:
      longest_joined: bytes of such a message.
    """

    def __init__(self, longest_joined: int) -> None:
        self.longest_joined = longest_joined
        self._new: queue.SimpleQueue[ToLearner | None] = queue.SimpleQueue()
        self._waiting: collections.deque[ToLearner | None] = collections.deque()

    def put(self, message: ToLearner | None) -> None:
        """Queues it behind what was put before; None for the end."""
        self._new.put(message)

    def __bool__(self) -> bool:
        """Whether something waits."""
        return bool(self._waiting) or not self._new.empty()

    def take(self, *, wait: bool) -> ToLearner | None:
        """The next message, None at the end. Raises queue.Empty if there is none, unless `wait`."""
        if not self._waiting:
            self._waiting.append(self._new.get(wait))
        while not self._new.empty():  # nobody else takes any
            self._waiting.append(self._new.get())
        message = self._waiting.popleft()
        return self._joined(message) if isinstance(message, FramedStep) else message

    def _joined(self, first: FramedStep) -> FramedStep:
        """One message of `first` and the steps that stand right behind it, as far as they fit."""
        steps, room = [first], self.longest_joined - len(first.message)
        waiting = self._waiting
        while waiting and isinstance(step := waiting[0], FramedStep) and len(step.message) <= room:
            room -= len(step.message)
            steps.append(step)
            waiting.popleft()
        return join_steps(steps)


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
        self._has_sent = False
        self._has_closed = threading.Event()
        self._outgoing = Outgoing(min(max_message_bytes, _LONGEST_JOINED_BYTES))
        # Who receives, and until when it is not worth while to send before it waits again.
        self._receiver, self._together_until = 0, 0.0
        channel = self._resources.enter_context(
            connect(address, max_message_bytes=max_message_bytes, credentials=credentials)
        )
        metadata = ((TOKEN_KEY, f"Bearer {token}"),) if token else ()
        self._call = open_call(channel, metadata, self._outgoing)
        # Before the channel, which does not free a call that is open.
        self._resources.callback(self._call.close)

    def put(self, message: ToLearner) -> None:
        """Sends `message` after those before it. Raises WireError if it is too long for a link."""
        self._has_sent = True
        if isinstance(message, FromEnvServer) and message.HasField("hello"):
            message.hello.link = "" if self._listener is None else self._listener.name
            message.hello.alive_seconds = self._promised_seconds()
        if self._link is not None:
            self._send_over(self._link, message)
        else:
            self._send(message)
        # Behind Ready, which has to be the first message after Assign.
        if isinstance(message, FromEnvServer) and message.HasField("ready"):
            self._keep_promise()

    def _send(self, message: ToLearner | None) -> None:
        """Over gRPC; None ends what is sent.

        While a group takes its time, the steps of those before it leave, unless they took none.
        """
        self._outgoing.put(message)
        is_soon_back = (
            time.monotonic() < self._together_until and threading.get_ident() == self._receiver
        )
        if not (is_soon_back and isinstance(message, FramedStep)):
            self._call.push()

    def _promised_seconds(self) -> float:
        return 0.0 if self._promise is None else self._promise.seconds

    def _keep_promise(self) -> None:
        if self._promised_seconds() and self._learner_minor >= MINOR_OF_ALIVE:
            threading.Thread(target=self._say_alive, name="alive", daemon=True).start()

    def messages(self) -> Iterator[ToEnvServer | WireError]:
        """What the learner sends, until it ends the stream.

        Raises grpc.RpcError if it ends with a status other than OK, or is lost; UnusableLinkError.
        """
        self._receiver = threading.get_ident()
        for message in self._call:
            if isinstance(message, FromLearner) and message.HasField("assign"):
                self._learner_minor = message.assign.minor
                outgoing = self._outgoing
                limit = message.assign.max_message_bytes or outgoing.longest_joined
                outgoing.longest_joined = min(outgoing.longest_joined, limit)
            if isinstance(message, FromLearner) and message.assign.linked:
                link = self._accept()
                yield message
                yield from map(receive_from_learner, link.receive())
            else:
                self._together_until = time.monotonic() + _TOGETHER_SECONDS
                yield message

    def end_within(self, seconds: float) -> threading.Timer:
        """Ends what is sent, and gives the learner `seconds` to end the stream thereupon.

        That ends `messages`. What is returned, once cancelled, leaves the learner all the time.
        """
        self._send(None)
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
        self._call.read_ahead(self._link.end)
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
                    self._send(_ALIVE)
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
