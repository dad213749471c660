"""An EnvSpec as JSON text, as proto/seedrl/wire/seedrl.proto describes it at `Ready.spec`."""

import json
from collections.abc import Mapping
from typing import Any

from seedrl.errors import CheckpointError
from seedrl.specs import (
    MOST_LEVELS,
    ActionSpec,
    ArraySpec,
    BoxSpec,
    DiscreteSpec,
    EnvSpec,
    show_path,
    show_value,
)
from seedrl.types import Tree

LONGEST_TEXT_BYTES = 2**16


def encode_spec(spec: EnvSpec) -> str:
    """A canonical text: equal specs give equal texts."""
    tree = {"observation": _encode(spec.observation), "action": _encode_action(spec.action)}
    return json.dumps(tree, sort_keys=True)


def decode_spec(text: object) -> EnvSpec:
    """Inverse of `encode_spec`. Raises ValueError, one line that names the field.

    What a file has instead of a text is refused too.
    """
    try:
        fields = _fields("env spec", _parse(text), "action", "observation")
        observation = _decode("observation", fields["observation"], 1)
        return EnvSpec(observation, _decode_action(fields["action"]))
    except RecursionError as error:
        raise ValueError("env spec: expected less deeply nested JSON") from error


def saved_spec(text: object) -> EnvSpec:
    """Like `decode_spec`, of a checkpoint. Raises CheckpointError: it may be an older seedrl's."""
    try:
        return decode_spec(text)
    except ValueError as error:
        raise CheckpointError(
            f"expected a checkpoint with a readable env_spec; {error}; it was written before "
            "actions had a spec (wire 2.0): start a new workdir, or use the seedrl of that time"
        ) from error


def _encode(tree: Tree) -> Any:
    if isinstance(tree, ArraySpec):
        return {"array": {"shape": list(tree.shape), "dtype": tree.dtype}}
    if isinstance(tree, Mapping):
        return {"dict": {key: _encode(item) for key, item in tree.items()}}
    return {"tuple": [_encode(item) for item in tree]}


def _encode_action(action: ActionSpec) -> Any:
    if isinstance(action, DiscreteSpec):
        return {"discrete": action.num_actions}
    return {"box": {"shape": [*action.shape], "low": [*action.low], "high": [*action.high]}}


def _parse(text: object) -> Any:
    if not isinstance(text, str):
        raise ValueError(f"env spec: expected JSON as text, got {show_value(text)}")
    # Looked at before anything is made of it: a peer may send as much as a message holds.
    size = len(text.encode())
    if size > LONGEST_TEXT_BYTES:
        raise ValueError(f"env spec: expected at most {LONGEST_TEXT_BYTES} bytes, got {size}")
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except ValueError as error:
        raise ValueError(f"env spec: expected JSON, got {show_value(text)}: {error}") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a key occurs twice in an object")
    return fields


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number of JSON")


def _fields(path: str, value: Any, *names: str) -> dict[str, Any]:
    if not isinstance(value, dict) or set(value) != set(names):
        found = sorted(value) if isinstance(value, dict) else value
        raise ValueError(
            f"{show_path(path)}: expected an object with {' and '.join(names)}, "
            f"got {show_value(found)}"
        )
    return value


def _only_field(path: str, value: Any, *names: str) -> tuple[str, Any]:
    if not isinstance(value, dict) or len(value) != 1 or not value.keys() <= set(names):
        found = sorted(value) if isinstance(value, dict) else value
        raise ValueError(
            f"{show_path(path)}: expected an object with one of {', '.join(names)}, "
            f"got {show_value(found)}"
        )
    return next(iter(value.items()))


def _list(path: str, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise ValueError(f"{show_path(path)}: expected a list, got {show_value(value)}")
    return tuple(value)


def _decode(path: str, value: Any, level: int) -> Tree:
    kind, content = _only_field(path, value, "array", "dict", "tuple")
    if kind == "array":
        fields = _fields(f"{path}.array", content, "dtype", "shape")
        shape = _list(f"{path}.array.shape", fields["shape"])
        try:
            return ArraySpec(shape, fields["dtype"])
        except ValueError as error:
            raise ValueError(f"{show_path(path)}: {error}") from error
    if level >= MOST_LEVELS:
        raise ValueError(f"{show_path(path)}: expected at most {MOST_LEVELS} levels of nesting")
    if kind == "tuple":
        items = _list(f"{path}.tuple", content)
        return tuple(_decode(f"{path}.{i}", item, level + 1) for i, item in enumerate(items))
    if not isinstance(content, dict):
        raise ValueError(f"{show_path(path)}.dict: expected an object, got {show_value(content)}")
    for key in content:
        if not key.isascii() and any("\ud800" <= each <= "\udfff" for each in key):
            # Half of a character: JSON can say it, and nothing that writes text can.
            raise ValueError(f"{show_path(path)}: expected keys of text, got {show_value(key)}")
    return {key: _decode(f"{path}.{key}", item, level + 1) for key, item in content.items()}


def _decode_action(value: Any) -> ActionSpec:
    kind, content = _only_field("action", value, "discrete", "box")
    try:
        if kind == "discrete":
            return DiscreteSpec(content)
        fields = _fields("box", content, "high", "low", "shape")
        low, high = (_numbers(name, fields[name]) for name in ("low", "high"))
        return BoxSpec(_list("shape", fields["shape"]), low, high)
    except ValueError as error:
        raise ValueError(f"action: {error}") from error


def _numbers(path: str, value: Any) -> tuple[float, ...]:
    numbers = _list(path, value)
    if any(type(number) not in (int, float) for number in numbers):
        raise ValueError(f"{path}: expected numbers, got {show_value(value)}")
    try:
        return tuple(map(float, numbers))
    except OverflowError as error:
        raise ValueError(f"{path}: expected numbers that are finite as float32") from error
