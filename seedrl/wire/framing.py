"""Messages of the Connect stream to bytes and back: the (de)serialisers given to gRPC.

Control messages go through protobuf. The two messages that carry arrays are one `bytes` field each;
their tag and length are written and read by hand around an untouched buffer, because protobuf's own
(de)serialiser copies it several times. What goes over the wire is valid protobuf all the same.
"""

import functools
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from google.protobuf.message import DecodeError, Message

from seedrl.wire.seedrl_pb2 import FromEnvServer, FromLearner

_LENGTH_DELIMITED = 2
_STEP_TAG = FromEnvServer.STEP_FIELD_NUMBER << 3 | _LENGTH_DELIMITED
_ACTIONS_TAG = FromLearner.ACTIONS_FIELD_NUMBER << 3 | _LENGTH_DELIMITED
# Longest handshake messages, before they are parsed: from an env server, and from a learner, which
# has slots and seeds to say.
LONGEST_FROM_ENV_SERVER_BYTES = 2**16
LONGEST_FROM_LEARNER_BYTES = 2**20
# 2^35 - 1 bytes: far beyond gRPC's own limit of 4 GiB for a message.
_LONGEST_VARINT = 5


class WireError(ValueError):
    """Bytes that are not what proto/seedrl/wire/seedrl.proto says; the text is one line."""


class FramedStep(NamedTuple):
    """A whole `FromEnvServer` message with a step, ready to be sent as it is; see `frame_step`."""

    message: bytes


# Content of `FromEnvServer.step`, to be read by `StepLayout.unpack`, and of `FromLearner.actions`,
# to be read by `ActionLayout.unpack`: what arrives otherwise is a message of protobuf.
StepPayload: TypeAlias = memoryview
ActionsPayload: TypeAlias = memoryview
ToLearner: TypeAlias = FromEnvServer | StepPayload | FramedStep
ToEnvServer: TypeAlias = FromLearner | ActionsPayload


def frame_step(num_bytes: int, parts: Iterable[bytes | memoryview]) -> FramedStep:
    """Frames a step of `num_bytes` whose content is `parts` in order, copying them only once."""
    return FramedStep(b"".join((_head(_STEP_TAG, num_bytes), *parts)))


def join_steps(steps: Sequence[FramedStep]) -> FramedStep:
    """One message with the steps of several groups, each group's once; copies all but one alone."""
    if len(steps) == 1:
        return steps[0]
    parts = [memoryview(step.message)[_content_start(step.message, "step") :] for step in steps]
    return frame_step(sum(map(len, parts)), parts)


def step_message_bytes(num_bytes: int) -> int:
    """Length of the message that frames a step of `num_bytes`."""
    return len(_head(_STEP_TAG, num_bytes)) + num_bytes


def encode_from_env_server(message: ToLearner) -> bytes:
    """Serialises what an env server sends; of a FromEnvServer only control messages are allowed."""
    if isinstance(message, FramedStep):
        return message.message
    if isinstance(message, StepPayload):
        return b"".join((_head(_STEP_TAG, len(message)), message))
    return _encode_control(message, "step")


def encode_from_learner(message: ToEnvServer) -> bytes:
    """Serialises what a learner sends; of a FromLearner only control messages are allowed."""
    if isinstance(message, ActionsPayload):
        return b"".join((_head(_ACTIONS_TAG, len(message)), message))
    return _encode_control(message, "actions")


def decode_from_env_server(data: bytes | memoryview) -> FromEnvServer | StepPayload:
    """Parses what an env server sent; a step's payload is a view of `data`. Raises WireError."""
    start = _content_start(data, "FromEnvServer")
    if data[0] == _STEP_TAG:
        return memoryview(data)[start:]
    message = FromEnvServer()
    _parse_control(message, data, LONGEST_FROM_ENV_SERVER_BYTES)
    return message


def decode_from_learner(data: bytes | memoryview) -> FromLearner | ActionsPayload:
    """Parses what a learner sent; an actions payload is a view of `data`. Raises WireError."""
    start = _content_start(data, "FromLearner")
    if data[0] == _ACTIONS_TAG:
        return memoryview(data)[start:]
    message = FromLearner()
    _parse_control(message, data, LONGEST_FROM_LEARNER_BYTES)
    return message


def receive_from_env_server(data: bytes | memoryview) -> FromEnvServer | StepPayload | WireError:
    """Like `decode_from_env_server`, but returns the WireError.

    gRPC turns an exception of a deserialiser into INTERNAL and a traceback; the receiver, who knows
    the peer, can answer with INVALID_ARGUMENT instead.
    """
    try:
        return decode_from_env_server(data)
    except WireError as error:
        # Not the one that was raised: the frames of its traceback hold the message, and they and it
        # hold each other until the garbage is collected.
        return WireError(str(error))


def receive_from_learner(data: bytes | memoryview) -> FromLearner | ActionsPayload | WireError:
    """Like `decode_from_learner`, but returns the WireError; see `receive_from_env_server`."""
    try:
        return decode_from_learner(data)
    except WireError as error:
        return WireError(str(error))


def too_long(limit: int, length: int) -> str:
    """That a message of `length` bytes is longer than a learner takes."""
    return (
        f"expected messages of at most {limit} bytes, got one of {length}; raise the limit "
        "(max_message_bytes) or send fewer environments in a group"
    )


def wrong_length(sizes: Sequence[tuple[str, int]], length: int) -> str:
    """That a step is of `length` bytes, and not of what its sections take, each with its name."""
    parts = " + ".join(f"{size} {name}" for name, size in sizes if size)
    expected = sum(size for _, size in sizes)
    return (
        f"expected a step payload of {expected} bytes, got {length}: {parts}, each padded to a "
        "multiple of 8"
    )


@functools.lru_cache(64)  # Nearly all messages of a stream have one length.
def _head(tag: int, length: int) -> bytes:
    head = bytearray((tag,))
    while length > 0x7F:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return bytes(head)


def _content_start(data: bytes | memoryview, kind: str) -> int:
    """Offset of the content of the only field of `data`, which must end where `data` ends."""
    if not data:
        raise WireError(f"expected a {kind} message, got no bytes")
    # Whatever else a field is, a message may hold more behind it.
    is_delimited = data[0] & 0x87 == _LENGTH_DELIMITED
    length = 0
    for position, byte in enumerate(data[1 : 1 + _LONGEST_VARINT]):
        length |= (byte & 0x7F) << 7 * position
        if byte & 0x80:
            continue
        if not is_delimited or (position and not byte):
            break  # a longer encoding than needed: there must be one encoding of a message only
        start = 2 + position
        if start + length == len(data):
            return start
        raise WireError(
            f"expected a {kind} message of one field of {length} bytes, got {len(data) - start}"
        )
    raise WireError(f"expected a field's tag and length in a {kind} message, got {data[:6].hex()}")


def _encode_control(message: Message, payload_field: str) -> bytes:
    content = message.WhichOneof("content")
    assert content not in (None, payload_field), f"{content} is not a control message"
    return message.SerializeToString()


def _parse_control(message: Message, data: bytes | memoryview, longest: int) -> None:
    kind = message.DESCRIPTOR.name
    if len(data) > longest:
        raise WireError(
            f"expected a {kind} message of the handshake of at most {longest} bytes, "
            f"got {len(data)}"
        )
    try:
        message.ParseFromString(bytes(data))
    except DecodeError as error:
        raise WireError(f"expected a {kind} message, got bytes that protobuf refuses") from error
    if message.WhichOneof("content") is None:
        raise WireError(f"expected a known field in a {kind} message, got field {data[0] >> 3}")
