"""Configurations as trees: of JSON values that lose nothing, and of fields to compare."""

import dataclasses
import difflib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from seedrl.errors import ConfigError

_ABSENT = object()


def encode(path: str, value: Any, type_name: Callable[[type], str]) -> Any:
    """`value` as JSON values: a dataclass is an object with its class under "type", a tuple a list.

    Args:
      path: the field that holds the value, for messages, e.g. `config.agent`.
      value: dataclasses, tuples, lists, dicts with text keys, text, numbers, bools and None.
      type_name: how a class is written.

    Raises:
      ConfigError: the value holds something else.
    """

    def encode_field(name: object, item: Any) -> Any:
        return encode(f"{path}.{name}", item, type_name)

    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {
            field.name: encode_field(field.name, getattr(value, field.name))
            for field in dataclasses.fields(value)
            if field.init
        }
        return {"type": type_name(type(value)), **fields}
    if type(value) is tuple:
        return [encode_field(index, item) for index, item in enumerate(value)]
    if isinstance(value, list):
        return {"type": "list", "items": [encode_field(*item) for item in enumerate(value)]}
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        items = {key: encode_field(key, item) for key, item in value.items()}
        return {"type": "dict", "items": items}
    if value is None or type(value) in (str, bool, int, float):
        return value
    raise ConfigError(
        f"{path}: expected a dataclass, tuple, list, dict, text, number, bool or None, which can "
        f"be saved with the run, got a {type(value).__name__}"
    )


def decode(path: str, tree: Any, find_type: Callable[[str, Any], type]) -> Any:
    """Inverse of `encode`.

    Args:
      path: the field that holds the value, for messages.
      tree: what `encode` gave.
      find_type: `(path, name) -> class`, inverse of `type_name`.

    Raises:
      ConfigError: an unknown or a missing field.
    """

    def decode_field(name: object, item: Any) -> Any:
        return decode(f"{path}.{name}", item, find_type)

    if isinstance(tree, list):
        return tuple(decode_field(index, item) for index, item in enumerate(tree))
    if not isinstance(tree, dict):
        return tree
    fields = dict(tree)
    kind = fields.pop("type", None)
    if kind == "list":
        return [decode_field(index, item) for index, item in enumerate(fields["items"])]
    if kind == "dict":
        return {key: decode_field(key, item) for key, item in fields["items"].items()}
    decoded = {name: decode_field(name, item) for name, item in fields.items()}
    return _construct(path, find_type(path, kind), decoded)


def difference(expected: Any, got: Any) -> list[str]:
    """One line per field that differs: `agent.unroll: expected 80, got 100`; empty if equal."""
    left, right = dict(_leaves("", expected)), dict(_leaves("", got))
    return [
        f"{path}: expected {_show(left.get(path, _ABSENT))}, got {_show(right.get(path, _ABSENT))}"
        for path in [*left, *(path for path in right if path not in left)]
        if left.get(path, _ABSENT) != right.get(path, _ABSENT)
    ]


def fields_of(config: Any) -> dict[str, Any]:
    """The values of all fields by their paths, `agent.unroll`; those of dataclasses one by one."""
    return {path: value for path, value in _leaves("", config) if not isinstance(value, type)}


def _construct(path: str, kind: type, fields: dict[str, Any]) -> Any:
    known = {field.name for field in dataclasses.fields(kind) if field.init}
    for name in fields:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}?" if close else "another version may have saved it"
            raise ConfigError(f"{path}.{name}: {kind.__name__} has no such field; {hint}")
    try:
        return kind(**fields)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from error
    except Exception as error:  # such as an AssertionError of a user's own class
        raise ConfigError(f"{path}: {type(error).__name__}: {error}") from error


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if not dataclasses.is_dataclass(value):
        yield path, value
        return
    yield f"{path}.type" if path else "type", type(value)
    for field in dataclasses.fields(value):
        yield from _leaves(f"{path}.{field.name}".lstrip("."), getattr(value, field.name))


def _show(value: Any) -> str:
    if value is _ABSENT:
        return "nothing"
    return value.__name__ if isinstance(value, type) else repr(value)
