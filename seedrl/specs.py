"""What an environment looks like from outside: its observations and its number of actions."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from seedrl.types import Tree

_KINDS = "buif"  # bool, signed, unsigned, float; no objects, no strings, no complex numbers


@dataclass(frozen=True)
class ArraySpec:
    """Shape and dtype of one array, without a batch axis. dtype is a numpy name such as `uint8`."""

    shape: tuple[int, ...]
    dtype: str

    def __post_init__(self) -> None:
        if np.dtype(self.dtype).kind not in _KINDS:
            raise ValueError(f"expected a bool, integer or float array, got dtype {self.dtype}")

    @property
    def num_bytes(self) -> int:
        """Bytes of one such array."""
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class EnvSpec:
    """An environment's interface: a tree (dicts, tuples) of ArraySpec, and discrete actions.

    Trees are ordered as JAX orders them: dict keys sorted, tuples as they stand.
    """

    observation: Tree
    num_actions: int

    def leaves(self) -> list[tuple[str, ArraySpec]]:
        """The observation's arrays with their paths, e.g. `observation.image`, in wire order."""
        return list(_walk("observation", self.observation))

    def unflatten(self, leaves: list[Any]) -> Tree:
        """The observation tree with `leaves`, in wire order, in place of its specs."""
        iterator = iter(leaves)
        tree = _rebuild(self.observation, iterator)
        assert next(iterator, None) is None, "more leaves than the spec has"
        return tree

    def flatten(self, observation: Tree) -> list[Any]:
        """The leaves of an observation tree of this spec, in wire order."""
        return list(_flatten(self.observation, observation))

    def to_json(self) -> str:
        """A canonical text: equal specs give equal texts."""
        tree = {"observation": _encode(self.observation), "num_actions": self.num_actions}
        return json.dumps(tree, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "EnvSpec":
        """Inverse of `to_json`. Raises ValueError for a text that is not a spec."""
        try:
            tree = json.loads(text)
            return cls(_decode(tree["observation"]), int(tree["num_actions"]))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"expected an env spec in JSON, got {text[:200]!r}") from error

    def difference(self, other: "EnvSpec") -> list[str]:
        """One line per field in which `other` differs from this spec; empty if they are equal."""
        mine, theirs = dict(self.leaves()), dict(other.leaves())
        lines = [
            f"{path}: expected {_show(mine.get(path))}, got {_show(theirs.get(path))}"
            for path in [*mine, *(path for path in theirs if path not in mine)]
            if mine.get(path) != theirs.get(path)
        ]
        if self.num_actions != other.num_actions:
            lines.append(f"num_actions: expected {self.num_actions}, got {other.num_actions}")
        return lines


def _show(spec: ArraySpec | None) -> str:
    return "nothing" if spec is None else f"{spec.dtype}{list(spec.shape)}"


def _walk(path: str, tree: Tree) -> Iterator[tuple[str, ArraySpec]]:
    if isinstance(tree, ArraySpec):
        yield path, tree
    elif isinstance(tree, Mapping):
        for key in sorted(tree):
            yield from _walk(f"{path}.{key}", tree[key])
    else:
        for position, item in enumerate(tree):
            yield from _walk(f"{path}.{position}", item)


def _rebuild(tree: Tree, leaves: Iterator[Any]) -> Tree:
    if isinstance(tree, ArraySpec):
        return next(leaves)
    if isinstance(tree, Mapping):
        return {key: _rebuild(tree[key], leaves) for key in sorted(tree)}
    return tuple(_rebuild(item, leaves) for item in tree)


def _flatten(spec: Tree, value: Tree) -> Iterator[Any]:
    if isinstance(spec, ArraySpec):
        yield value
    elif isinstance(spec, Mapping):
        for key in sorted(spec):
            yield from _flatten(spec[key], value[key])
    else:
        for item, part in zip(spec, value, strict=True):
            yield from _flatten(item, part)


def _encode(tree: Tree) -> Any:
    if isinstance(tree, ArraySpec):
        return {"array": [list(tree.shape), tree.dtype]}
    if isinstance(tree, Mapping):
        return {"dict": {key: _encode(item) for key, item in tree.items()}}
    return {"tuple": [_encode(item) for item in tree]}


def _decode(tree: Any) -> Tree:
    ((kind, content),) = tree.items()
    if kind == "array":
        shape, dtype = content
        return ArraySpec(tuple(int(size) for size in shape), str(dtype))
    if kind == "dict":
        return {key: _decode(item) for key, item in content.items()}
    if kind == "tuple":
        return tuple(_decode(item) for item in content)
    raise ValueError(f"expected an array, dict or tuple in an env spec, got {kind!r}")
