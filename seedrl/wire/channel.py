"""The Connect stream over gRPC: an env server's connection; `learner_end` has the learner's.

gRPC ignores options that it does not know, so the keys here are those whose effect was seen: a
process that stands still is noticed by `ping_timeout_ms`, a machine that is gone sooner, by
`keepalive_timeout_ms`, which is TCP's own limit for an acknowledgement.
"""

import contextlib
import queue
import threading
import time
from collections.abc import Iterator
from typing import Any, Self

import grpc

from seedrl.wire.framing import (
    FramedStep,
    ToEnvServer,
    ToLearner,
    WireError,
    encode_from_env_server,
    join_steps,
    receive_from_learner,
)
from seedrl.wire.link import Link, UnusableLinkError, listen
from seedrl.wire.seedrl_pb2 import FromEnvServer, FromLearner

SERVICE = "seedrl.wire.Learner"
CONNECT = f"/{SERVICE}/Connect"

Option = tuple[str, int]
# Its kernel acknowledges at once, whatever the process does: silence means that the machine, or the
# way to it, is gone. Seen: 5.9 s from pulling a cable to the end of the stream.
_ACKNOWLEDGEMENT_MILLISECONDS = 5_000
# A learner answers pings in threads of gRPC's own, whatever it computes: one that stands still is
# noticed within 3 seconds.
_LEARNER_PING_MILLISECONDS = 1_000
_LEARNER_PING_TIMEOUT_MILLISECONDS = 1_800
# None but the identity: who is sent one is not made to expand it, and ends the call with
# UNIMPLEMENTED. A message of 32 MiB in 32 KiB cost 31 ms of a learner's processor, and costs 2.
UNCOMPRESSED: Option = ("grpc.compression_enabled_algorithms_bitset", 1)
# Where a call's metadata may carry `Bearer <token>`.
TOKEN_KEY = "authorization"
# Longer steps are not worth another copy.
_LONGEST_JOINED_BYTES = 2**18
# A step that is ready so soon after its actions waits for those of groups that were answered with
# it: to be on its way so much earlier is worth less than the cost of another message.
_TOGETHER_SECONDS = 0.0002


def connect(address: str, credentials: grpc.ChannelCredentials | None = None) -> grpc.Channel:
    """A channel to the learner at `address` (`host:port` or `unix:/path`). Does not wait for it."""
    options: list[Option] = [
        ("grpc.max_receive_message_length", -1),  # of any length: the learner's limit binds it
        *keepalive(_LEARNER_PING_MILLISECONDS, _LEARNER_PING_TIMEOUT_MILLISECONDS),
        # Not the "min" one: in gRPC's core it also is how long an attempt to connect may take.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 1_000),
        ("grpc.enable_retries", 0),
        # A connection of its own, also beside other env servers of the same process.
        ("grpc.use_local_subchannel_pool", 1),
        # A proxy meant for the web must not stand between an env server and its learner.
        ("grpc.enable_http_proxy", 0),
        UNCOMPRESSED,
    ]

    if credentials is None:
        return grpc.insecure_channel(address, options)
    return grpc.secure_channel(address, credentials, options)


def keepalive(every_milliseconds: int, timeout_milliseconds: int) -> list[Option]:
    return [
        ("grpc.keepalive_time_ms", every_milliseconds),
        ("grpc.keepalive_timeout_ms", _ACKNOWLEDGEMENT_MILLISECONDS),
        ("grpc.http2.ping_timeout_ms", timeout_milliseconds),
        ("grpc.http2.max_pings_without_data", 0),
    ]


class LearnerConnection:
    """An env server's connection to its learner: over gRPC, or over a link from Assign on.

    Offers a learner of this host a link in Hello, and uses it if Assign says that it was taken.
    Owns the channel, the call, the listener and the link from its creation to `close`.

    One thread sends, receives and closes; any may `cancel`. gRPC has two more threads for a call:
    one takes messages from the queue here, the other one takes gRPC's events.
    """

    def __init__(
        self,
        address: str,
        *,
        local_link: bool = True,
        token: str = "",
        credentials: grpc.ChannelCredentials | None = None,
    ) -> None:
        """Does not wait for the learner.

        Args:
          address: the learner's, `host:port` or `unix:/path`.
          local_link: whether to offer a link.
          token: goes with the call as `Bearer <token>`; "" for none.
          credentials: of TLS; None for a connection without.
        """
        self._resources = contextlib.ExitStack()
        self._listener = listen() if local_link else None
        if self._listener is not None:
            self._resources.callback(self._listener.close)
        self._link: Link | None = None
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        # Steps that may leave together, until when, and how long together.
        self._together: list[bytes] = []
        self._together_until = 0.0
        self._longest_joined = _LONGEST_JOINED_BYTES
        channel = self._resources.enter_context(connect(address, credentials))
        metadata = ((TOKEN_KEY, f"Bearer {token}"),) if token else ()
        # Bytes both ways: gRPC's own threads have nothing to encode, parse or check.
        call: Any = channel.stream_stream(CONNECT)
        self._call = call(iter(self._outgoing.get, None), metadata=metadata)
        # Before the channel, which does not free a call that is open.
        self._resources.callback(self._call.cancel)

    def put(self, message: ToLearner) -> None:
        """Sends `message` after those before it."""
        if isinstance(message, FramedStep):
            self._send_step(message)
            return
        if isinstance(message, FromEnvServer) and message.HasField("hello"):
            message.hello.link = "" if self._listener is None else self._listener.name
        data = encode_from_env_server(message)
        if self._link is not None:
            self._link.send(data)
        else:
            self._flush()
            self._outgoing.put(data)

    def _send_step(self, step: FramedStep) -> None:
        if self._link is not None:
            self._link.send(step)
            return
        # Copied: gRPC's thread sends it while the environments' next step overwrites its memory.
        self._together.append(step.message)
        # While one group takes its time, the steps of those before it leave.
        if time.monotonic() >= self._together_until:
            self._flush()

    def _flush(self) -> None:
        """Sends the steps that waited for one another, in one message if they fit into one."""
        waiting, self._together = self._together, []
        if waiting and sum(map(len, waiting)) <= self._longest_joined:
            waiting = [join_steps(waiting)]
        for message in waiting:
            self._outgoing.put(message)

    def messages(self) -> Iterator[ToEnvServer | WireError]:
        """Messages of the learner until it ends the stream.

        Yields a WireError as a value for bytes that break the contract. Raises grpc.RpcError if the
        stream ends with a status other than OK, or is lost; UnusableLinkError.
        """
        for data in self._call:
            message = receive_from_learner(data)
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

    def await_end(self, seconds: float) -> str | None:
        """Ends the sending side, and waits so long for the learner to end the stream thereupon.

        Returns why training is over, if the learner's Finish crossed what was sent last.
        """
        self._flush()
        self._outgoing.put(None)
        deadline = threading.Timer(seconds, self._call.cancel)
        deadline.daemon = True
        deadline.start()
        finished = None
        with contextlib.suppress(grpc.RpcError):
            for message in map(receive_from_learner, self._call):
                if isinstance(message, FromLearner) and message.HasField("finish"):
                    finished = message.finish.reason
        deadline.cancel()
        return finished

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
        accepted = None if self._listener is None else self._listener.accept()
        if accepted is None:
            raise UnusableLinkError("it did not use the link that it took")
        self._link = accepted
        self._resources.callback(accepted.close)
        # The end of the stream is that of the link; why, the stream says.
        if not self._call.add_callback(accepted.end):
            accepted.end()
        return accepted
