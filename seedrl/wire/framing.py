"""Messages of the Connect stream to bytes and back: the (de)serialisers given to gRPC.

Control messages go through protobuf. The two messages that carry arrays are one `bytes` field each;
their tag and length are written and read by hand around an untouched buffer, because protobuf's own
(de)serialiser copies it several times. What goes over the wire is valid protobuf all the same.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias, TypeVar

from google.protobuf.message import DecodeError

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
# Up to here one copy costs a socket less than many parts.
_COPIED_BYTES = 2**14


class WireError(ValueError):
    """A message against proto/seedrl/wire/seedrl.proto: its bytes, or its place in the dialogue.

    It ends its own connection only. The text is one line.
    """


class FramedStep(NamedTuple):
    """A whole `FromEnvServer` message with a step, in parts that a socket can take in one call.

    Parts may be the environments' own memory, which their next step overwrites.

    Attributes:
      num_bytes: of all parts together.
    """

    parts: Sequence[bytes | memoryview]
    num_bytes: int

    @property
    def message(self) -> bytes:
        """All parts, copied."""
        return b"".join(self.parts)


# Content of `FromEnvServer.step`, to be read by `StepLayout.unpack`, and of `FromLearner.actions`,
# to be read by `ActionLayout.unpack`: what arrives otherwise is a message of protobuf.
StepPayload: TypeAlias = memoryview
ActionsPayload: TypeAlias = memoryview
ToLearner: TypeAlias = FromEnvServer | StepPayload | FramedStep
ToEnvServer: TypeAlias = FromLearner | ActionsPayload
Control = TypeVar("Control", FromEnvServer, FromLearner)


def frame_step(num_bytes: int, parts: Sequence[bytes | memoryview]) -> FramedStep:
    """Frames a step of `num_bytes` whose content is `parts` in order; copies only short ones."""
    head = _head(_STEP_TAG, num_bytes)
    framed = (head, *parts)
    length = len(head) + num_bytes
    return FramedStep(framed if length > _COPIED_BYTES else (b"".join(framed),), length)


def join_steps(messages: Sequence[bytes]) -> bytes:
    """One message with the steps of several groups' messages, each group's once."""
    if len(messages) == 1:
        return messages[0]
    parts = [memoryview(message)[_content_start(message, "step") :] for message in messages]
    return frame_step(sum(map(len, parts)), parts).message


def step_message_bytes(num_bytes: int) -> int:
    """Length of the message that frames a step of `num_bytes`."""
    return len(_head(_STEP_TAG, num_bytes)) + num_bytes


def encode_from_env_server(message: ToLearner) -> bytes:
    """Serialises what an env server sends; of a FromEnvServer only control messages are allowed."""
    if isinstance(message, FramedStep):
        return message.message
    if isinstance(message, StepPayload):
        return b"".join((_head(_STEP_TAG, len(message)), message))
    return message.SerializeToString(deterministic=True)


def encode_from_learner(message: ToEnvServer) -> bytes:
    """Serialises what a learner sends; of a FromLearner only control messages are allowed."""
    if isinstance(message, ActionsPayload):
        return b"".join((_head(_ACTIONS_TAG, len(message)), message))
    return message.SerializeToString(deterministic=True)


def receive_from_env_server(data: bytes | memoryview) -> FromEnvServer | StepPayload | WireError:
    """Parses what an env server sent; a step's payload is a view of `data`.

    Returns a WireError for bytes that break the contract. gRPC would turn an exception of a
    deserialiser into INTERNAL and a traceback; the receiver, who knows the peer, can answer with
    INVALID_ARGUMENT instead.
    """
    return _received(data, FromEnvServer, _STEP_TAG, LONGEST_FROM_ENV_SERVER_BYTES)


def receive_from_learner(data: bytes | memoryview) -> FromLearner | ActionsPayload | WireError:
    """Parses what a learner sent, like `receive_from_env_server`; actions are a view of `data`."""
    return _received(data, FromLearner, _ACTIONS_TAG, LONGEST_FROM_LEARNER_BYTES)


def too_long(limit: int, length: int) -> str:
    """Text for a message of `length` bytes, longer than a learner takes."""
    return (
        f"expected messages of at most {limit} bytes, got one of {length}; raise the limit "
        "(max_message_bytes) or send fewer environments in a group"
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


def _received(
    data: bytes | memoryview, kind: type[Control], payload_tag: int, longest: int
) -> Control | memoryview | WireError:
    try:
        start = _content_start(data, kind.__name__)
        return memoryview(data)[start:] if data[0] == payload_tag else _parsed(data, kind, longest)
    except WireError as error:
        # Not the one that was raised: the frames of its traceback hold the message, and they and it
        # hold each other until the garbage is collected.
        return WireError(str(error))


def _parsed(data: bytes | memoryview, kind: type[Control], longest: int) -> Control:
    name = kind.__name__
    if len(data) > longest:
        raise WireError(f"expected a {name} message of at most {longest} bytes, got {len(data)}")
    message = kind()
    try:
        message.ParseFromString(bytes(data))
    except DecodeError as error:
        raise WireError(f"expected a {name} message, got bytes that protobuf refuses") from error
    if message.WhichOneof("content") is None:
        raise WireError(f"expected a known field in a {name} message, got field {data[0] >> 3}")
    return message
