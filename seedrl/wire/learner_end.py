"""The learner's end of the Connect stream and of a link. An env server never loads this.

As in `channel`, the options are those whose effect was seen: a second learner on a port is refused
only with `so_reuseport` 0, and pings of an idle client need both `max_pings_without_data` 0 there
and `min_ping_interval_without_data_ms` here.
"""

import re
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import grpc

from seedrl.wire.channel import SERVICE, UNCOMPRESSED, Option, keepalive
from seedrl.wire.framing import (
    ActionsPayload,
    StepPayload,
    WireError,
    encode_from_learner,
    receive_from_env_server,
    too_long,
)
from seedrl.wire.link import LENGTH, Buffer, Link, address_of
from seedrl.wire.seedrl_pb2 import FromEnvServer, FromLearner

Received = FromEnvServer | StepPayload | WireError
Answer = FromLearner | ActionsPayload
Serve = Callable[[Iterator[Received], grpc.ServicerContext], Iterator[Answer]]

# An env server is asked this often whether it is there. Its process may be busy: one with a single
# thread answers only between two steps of environments.
_PING_MILLISECONDS = 2_000
_PING_TIMEOUT_MILLISECONDS = 20_000
# Of a stream that nobody reads a learner takes so much, then its sender waits; of a message that is
# read, all that is left. gRPC would take 4 MiB, also of calls that are about to be refused. What an
# env server has in flight beyond it costs one more way there and back: two groups of 32 images fit.
# The number counts only without gRPC's own estimate of the network (`bdp_probe`).
_UNREAD_BYTES = 2**19
# All that an address holds after its first byte, which is 0.
_LONGEST_NAME_BYTES = 107
# Of a socket that is meant for us: a peer must not have us connect to whatever it likes.
_LINK_NAME = re.compile(rb"seedrl-[^/\0]{0,100}/.{1,64}", re.DOTALL)


def server_options(max_message_bytes: int) -> list[Option]:
    """Options for a server; `max_message_bytes` is the longest message that it reads."""
    return [
        ("grpc.so_reuseport", 0),
        # Beyond it gRPC itself ends the stream, with RESOURCE_EXHAUSTED, which seems as if it would
        # pass. What is too long, but shorter, is refused in words: see `learner_handler`. Of that
        # gRPC and Python hold a copy each: with twice the limit here it was four times as much.
        ("grpc.max_receive_message_length", max_message_bytes + max_message_bytes // 4),
        *keepalive(_PING_MILLISECONDS, _PING_TIMEOUT_MILLISECONDS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", 500),
        ("grpc.http2.max_ping_strikes", 2),
        ("grpc.server_handshake_timeout_ms", 2_000),
        ("grpc.max_connection_idle_ms", 10_000),
        # Per connection; an env server needs one. More would wait without a word.
        ("grpc.max_concurrent_streams", 16),
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", _UNREAD_BYTES),
        UNCOMPRESSED,
    ]


def learner_handler(serve: Serve, max_message_bytes: int) -> grpc.GenericRpcHandler:
    """A handler for `server.add_generic_rpc_handlers` that runs `serve` for every stream.

    `serve` reads FromEnvServer (control messages only), StepPayload, or a WireError as a value for
    bytes that break the contract or are more than `max_message_bytes`; it sends FromLearner and
    ActionsPayload.
    """

    def receive(data: bytes) -> Received:
        if len(data) > max_message_bytes:
            return WireError(too_long(max_message_bytes, len(data)))
        return receive_from_env_server(data)

    method: Any = grpc.stream_stream_rpc_method_handler(
        serve,
        request_deserializer=receive,
        response_serializer=encode_from_learner,
    )
    return grpc.method_handlers_generic_handler(SERVICE, {"Connect": method})


class LearnerLink(Link):
    """The learner's end of a link, which waits for no env server.

    Any thread may `send_at_once` and `end` it; one receives and closes.
    """

    def send_at_once(self, message: Buffer) -> bool:
        """Sends `message` without waiting; False if it could not. Without room the link ends."""
        try:
            with self.closing:
                parts = (LENGTH.pack(len(message)), message)
                sent = self.connection.sendmsg(parts, (), socket.MSG_DONTWAIT)
        except OSError:
            sent = 0
        if sent < LENGTH.size + len(message):
            self.end()
            return False
        return True

    def send_actions(self, payload: ActionsPayload) -> bool:
        """Sends the actions of a group, like `send_at_once`."""
        return self.send_at_once(encode_from_learner(payload))

    def receive_at_once(self) -> Sequence[Buffer] | None:
        """Messages that have arrived, maybe not all; None at the end; raises like `receive`."""
        return self.read(socket.MSG_DONTWAIT)

    def fileno(self) -> int:
        """Descriptor to wait at for something to receive."""
        return self.connection.fileno()


def connect_link(name: str, max_message_bytes: int) -> LearnerLink | str:
    """The link to the env server whose listener has that name, or in one line why there is none.

    `max_message_bytes` is the longest message that is accepted.
    """
    if not name:
        return "the env server offers no Unix socket"
    if not _LINK_NAME.fullmatch(name.encode()):
        return "expected seedrl-<any>/<secret>, of at most 107 and 1 to 64 bytes"
    if sys.platform != "linux":
        return "the learner's system has no abstract sockets"
    socket_name, _, secret = name.partition("/")
    # Some languages fill the name with zeros, which makes another name of it.
    for address_name in (socket_name, socket_name.ljust(_LONGEST_NAME_BYTES, "\0")):
        connection = socket.socket(socket.AF_UNIX)
        try:
            # Nobody waits for a listener whose queue is full.
            connection.setblocking(False)
            connection.connect(address_of(address_name))
            connection.send(secret.encode())
            connection.setblocking(True)
            return LearnerLink(connection, max_message_bytes)
        except OSError as error:
            connection.close()
            failure = error
    return (
        f"the learner finds no such socket ({failure.strerror}): is it of another host, container "
        "or network namespace?"
    )
