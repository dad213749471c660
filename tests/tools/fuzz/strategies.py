"""Inputs of a target that know how it is built: damaged bytes, and any messages."""

import functools
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

from seedrl.wire.seedrl_pb2 import FromEnvServer, FromLearner
from tests.tools.fuzz.conversations import in_a_row
from tests.tools.fuzz.target import Target

_PIECES = st.one_of(
    st.binary(max_size=8),
    st.sampled_from(
        (
            *(b"\xff" * 4, b"\xff" * 8, b"\0" * 8, b"\0\0\xc0\x7f", b"\0\0\x80\x7f"),
            *(b"\x80" * 6, b"\n", b"\x1b[2J", b'"', b"{}", b"[]", b"1e999", b"-1", b"true"),
            *(b"[" * 20_000, b"9" * 5000, "\ud7ff\u2028".encode()),
        )
    ),
)


@st.composite
def damaged(draw: st.DrawFn, seeds: tuple[bytes, ...]) -> bytes:
    """One of the seeds with up to three pieces replaced, put in or cut out."""
    data = bytearray(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(data)))
        length = draw(st.integers(0, 8) | st.just(len(data)))
        data[start : start + length] = draw(_PIECES)
    return bytes(data)


_UNSIGNED = st.sampled_from([0, 1, 2, 3, 4, 2**31, 2**32 - 1])
_VALUES = {
    FieldDescriptor.TYPE_UINT32: _UNSIGNED,
    FieldDescriptor.TYPE_UINT64: _UNSIGNED | st.sampled_from([2**32, 2**63, 2**64 - 1]),
    FieldDescriptor.TYPE_BOOL: st.booleans(),
    FieldDescriptor.TYPE_DOUBLE: st.floats(),
    FieldDescriptor.TYPE_FLOAT: st.floats(width=32),
    FieldDescriptor.TYPE_STRING: st.text(max_size=8) | st.just("x" * 3000) | st.just("{}"),
    FieldDescriptor.TYPE_BYTES: st.binary(max_size=80),
}


@st.composite
def messages(draw: st.DrawFn, kind: type[Message]) -> Message:
    """Any message of that kind; most fields are not set."""
    return kind(**draw(_fields(kind.DESCRIPTOR)))


@st.composite
def _fields(draw: st.DrawFn, descriptor: Any) -> dict[str, Any]:
    return {name: draw(_value(descriptor, name)) for name in draw(_names(descriptor))}


@functools.cache
def _names(descriptor: Any) -> st.SearchStrategy[list[str]]:
    names = [field.name for field in descriptor.fields]
    return st.lists(st.sampled_from(names), max_size=5, unique=True) if names else st.just([])


@functools.cache
def _value(descriptor: Any, name: str) -> st.SearchStrategy[Any]:
    field = descriptor.fields_by_name[name]
    if field.message_type and field.message_type.GetOptions().map_entry:
        entry = field.message_type
        inner = GetMessageClass(entry.fields_by_name["value"].message_type)
        items = st.builds(lambda fields: inner(**fields), _value(entry, "value"))
        return st.dictionaries(_value(entry, "key"), items, max_size=2)
    value = _fields(field.message_type) if field.message_type else _VALUES[field.type]
    return st.lists(value, max_size=3) if field.is_repeated else value


_ENCODED = {
    "env_server_says": messages(FromEnvServer).map(lambda message: message.SerializeToString()),
    "learner_says": messages(FromLearner).map(lambda message: message.SerializeToString()),
}


@st.composite
def _said(draw: st.DrawFn, target: Target) -> bytes:
    """A seed's conversation, or its beginning, and then anything."""
    row = draw(st.sampled_from(target.seeds))
    for _ in range(draw(st.integers(1, 3))):
        row += in_a_row(draw(_ENCODED[target.name]))
    return row


def inputs(target: Target) -> st.SearchStrategy[bytes]:
    """For a target: whatever fits to what it reads."""
    if target.name == "frames":
        return st.one_of(damaged(target.seeds), *_ENCODED.values())
    if target.name in _ENCODED:
        alone = _ENCODED[target.name].map(in_a_row)
        return st.one_of(damaged(target.seeds), _said(target), alone)
    return damaged(target.seeds)
