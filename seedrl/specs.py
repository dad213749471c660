"""What an environment looks like from outside: its observations and its actions.

A spec crosses the wire, where it may come from anybody, so every bound on it is checked here,
before anything is allocated. `seedrl.wire.spec` has its messages, `seedrl.observations` what the
bundled networks make of it.
"""

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from seedrl.types import Tree

MOST_LEAVES = 256
MOST_LEVELS = 8
MOST_DIMENSIONS = 8
MOST_ELEMENTS = 2**28
MOST_ACTIONS = 2**20
MOST_ACTION_ELEMENTS = 1024
MOST_TOKENS = 2**16  # of a turn, and of a completion
MOST_SEED = 2**31 - 3  # of a question: it is sent plus 1, and a space counts one more
# Questions of evaluation have seeds from here on, those of training and pretraining lower ones.
FIRST_HELD_OUT_SEED = MOST_SEED // 2 + 1
MOST_BOUNDS = 1024
# Bounds from here on say that there are none: spaces write "unbounded" as the ends of their dtype.
NO_BOUND = 2**31 - 1
DTYPES = (
    *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
    *("float16", "float32", "float64"),
)
# The key of a dict observation, and of an environment's `info`, that holds the action mask.
ACTION_MASK = "action_mask"
_LONGEST_SHOWN = 60  # of a path in a message, which becomes the text of a gRPC status


@dataclass(frozen=True)
class ArraySpec:
    """One array, without a batch axis.

    Attributes:
      shape: of the array.
      dtype: one of `DTYPES`.
      low, high: bounds that its space declares: one number for all elements, or one for each of
        them in C order; () if it declares none (uint8 is then 0 to 255).
      is_categorical: its integers, `low` to `high`, name things without an order, as those of
        gymnasium's Discrete and MultiDiscrete do.

    Raises ValueError for what is beyond the bounds of this module.
    """

    shape: tuple[int, ...]
    dtype: str
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    is_categorical: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.dtype, str) or self.dtype not in DTYPES:
            raise ValueError(f"expected dtype {', '.join(DTYPES)}; got {self.dtype!r:.60}")
        _check_shape(self.shape, MOST_ELEMENTS)
        bounds, size = [*self.low, *self.high], math.prod(self.shape)
        has_both = len(self.low) == len(self.high) and len(self.low) in (0, 1, size)
        pairs = zip(self.low, self.high, strict=False)
        # False for NaN too.
        is_ordered = all(-NO_BOUND < low <= high < NO_BOUND for low, high in pairs)
        is_right = has_both and len(self.low) <= MOST_BOUNDS and is_ordered
        if is_right and self.is_categorical:
            is_whole = all(bound == int(bound) for bound in bounds)
            is_right = bool(bounds) and "int" in self.dtype and is_whole
        if not is_right:
            raise ValueError(
                f"expected low <= high within {NO_BOUND}, of one or each of {size} elements (at "
                f"most {MOST_BOUNDS}), whole of categories, or none; got {self.dtype} of "
                f"{self.low!r:.60} to {self.high!r:.60}"
            )

    @property
    def num_bytes(self) -> int:
        """Bytes of one such array."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class DiscreteSpec:
    """One of `num_actions` actions, stored as int32 from 0. Raises ValueError beyond the bounds."""

    num_actions: int

    def __post_init__(self) -> None:
        if type(self.num_actions) is not int or not 1 <= self.num_actions <= MOST_ACTIONS:
            raise ValueError(
                f"expected 1 to {MOST_ACTIONS} discrete actions, got {self.num_actions!r:.60}"
            )

    def __str__(self) -> str:
        return f"Discrete({self.num_actions})"

    @property
    def array(self) -> ArraySpec:
        """One action as it is stored and sent."""
        return ArraySpec((), "int32")

    @property
    def largest(self) -> int:
        """The last action."""
        return self.num_actions - 1


@dataclass(frozen=True)
class MultiDiscreteSpec:
    """Several discrete actions at once, one for each element of an array, stored as int32 from 0.

    Attributes:
      shape: of one action.
      counts: how many actions each element chooses among, in C order.

    Raises ValueError for what is beyond the bounds of this module.
    """

    shape: tuple[int, ...]
    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        _check_shape(self.shape, MOST_ACTION_ELEMENTS)
        size, counts = math.prod(self.shape), self.counts
        is_right = isinstance(counts, tuple) and len(counts) == size
        is_right = is_right and all(type(count) is int and count >= 1 for count in counts)
        # Of all elements as many as of the largest: networks pad them (`MultiCategorical`).
        if not is_right or size * max(counts) > MOST_ACTIONS:
            raise ValueError(
                f"expected {size} counts of discrete actions, each 1 to {MOST_ACTIONS // size}, "
                f"got {counts!r:.60}"
            )

    def __str__(self) -> str:
        return f"MultiDiscrete({list(self.counts)!r:.60})"

    @property
    def array(self) -> ArraySpec:
        """One action as it is stored and sent."""
        return ArraySpec(self.shape, "int32")

    @property
    def largest(self) -> np.ndarray:
        """The last action of each element, `[*shape] int32`."""
        return np.array(self.counts, np.int32).reshape(self.shape) - 1


@dataclass(frozen=True)
class BoxSpec:
    """Real numbers, which an agent emits as float32.

    Between two bounds they are in [-1, 1], and env servers rescale them. Without two they are the
    environment's own numbers; env servers clip them to the one bound, if there is one.

    Attributes:
      shape: of one action.
      low, high: what -1 and 1 mean to the environment: low < high, as many as `shape` has elements,
        in C order; infinite, or from `NO_BOUND` on, where there is no bound.

    Raises ValueError for what is beyond the bounds of this module.
    """

    shape: tuple[int, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    def __post_init__(self) -> None:
        _check_shape(self.shape, MOST_ACTION_ELEMENTS)
        size, bounds = math.prod(self.shape), (self.low, self.high)
        is_right = all(isinstance(bound, tuple) and len(bound) == size for bound in bounds)
        # NaN fails every comparison.
        is_right = is_right and all(low < high for low, high in zip(*bounds, strict=True))
        largest = float(np.finfo(np.float32).max)
        if not is_right or any(largest < abs(each) < math.inf for each in self.low + self.high):
            raise ValueError(
                f"expected low < high as flat tuples of {size} numbers each, infinite or finite as "
                f"float32, got {self.low!r:.60} and {self.high!r:.60}"
            )

    def __str__(self) -> str:
        return f"Box{list(self.shape)}{'' if self.is_bounded.all() else ' without bounds'}"

    @property
    def array(self) -> ArraySpec:
        """One action as it is stored and sent."""
        return ArraySpec(self.shape, "float32")

    @functools.cached_property
    def is_bounded(self) -> np.ndarray:
        """`[*shape] bool`: elements with two bounds."""
        outermost = np.maximum(np.abs(self.low), np.abs(self.high))
        return (outermost < NO_BOUND).reshape(self.shape)

    @functools.cached_property
    def largest(self) -> float | np.ndarray:
        """The largest number that is sent, either way: one for all, or `[*shape] float32`."""
        if self.is_bounded.all():
            return 1.0
        return np.where(self.is_bounded, np.float32(1), np.finfo(np.float32).max)

    def rescaler(self) -> Callable[[np.ndarray], np.ndarray]:
        """Maps agents' `[..., *shape]` to float64 numbers between `low` and `high`."""
        low, high = (np.array(bound).reshape(self.shape) for bound in (self.low, self.high))
        first, last = np.where(self.is_bounded, low, -1.0), np.where(self.is_bounded, high, 1.0)
        middle, half = (first + last) / 2, (last - first) / 2
        return lambda actions: np.clip(middle + half * actions, low, high)


@dataclass(frozen=True)
class TokensSpec:
    """Turns and completions: the environment and the policy send each other token ids.

    `seedrl.turns` lays both out as rows of int32. An observation is one turn, an action one
    completion.

    Attributes:
      vocabulary: number of tokens; ids are 0 to it - 1.
      longest_turn, longest_completion: most ids of each.
      end: the id that ends a completion.
      alphabet: the character of each id from 0 on, by which people read them; may be shorter.

    Raises ValueError for what is beyond the bounds of this module.
    """

    vocabulary: int
    longest_turn: int
    longest_completion: int
    end: int
    alphabet: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        limits = {
            "vocabulary": (2, MOST_ACTIONS),
            "longest_turn": (1, MOST_TOKENS),
            "longest_completion": (1, MOST_TOKENS),
            "end": (0, self.vocabulary - 1 if type(self.vocabulary) is int else 0),
        }
        for name, (least, most) in limits.items():
            value = getattr(self, name)
            if type(value) is not int or not least <= value <= most:
                raise ValueError(f"tokens.{name}: expected {least} to {most}, got {value!r:.60}")
        if not isinstance(self.alphabet, str) or len(self.alphabet) > self.vocabulary:
            got = f"at most {self.vocabulary} characters, got {self.alphabet!r:.60}"
            raise ValueError(f"tokens.alphabet: expected {got}")

    def __str__(self) -> str:
        return f"completions of up to {self.longest_completion} of {self.vocabulary} tokens"

    @property
    def array(self) -> ArraySpec:
        """One completion as it is stored and sent."""
        return ArraySpec((2 + self.longest_completion,), "int32")

    @property
    def turn(self) -> ArraySpec:
        """One turn as it is stored and sent."""
        return ArraySpec((2 + self.longest_turn,), "int32", (0.0,), (float(MOST_SEED + 1),))

    @functools.cached_property
    def largest(self) -> np.ndarray:
        """The largest number of each element of a completion, `[2 + longest_completion] int32`."""
        ids = [self.vocabulary - 1] * self.longest_completion
        return np.array([MOST_SEED + 1, self.longest_completion, *ids], np.int32)


ActionSpec: TypeAlias = DiscreteSpec | MultiDiscreteSpec | BoxSpec | TokensSpec


@dataclass(frozen=True)
class EnvSpec:
    """An environment's interface: a tree (dicts, tuples) of ArraySpec, and its actions.

    Trees are ordered as JAX orders them: dict keys sorted, tuples as they stand. An observation
    that is a dict may have an action mask: `action_mask [A] bool`, True for each discrete action
    that may be taken. Raises ValueError for an observation beyond the bounds of this module, and
    for another mask.
    """

    observation: Tree
    action: ActionSpec

    def __post_init__(self) -> None:
        leaves = self.leaves()
        if not 1 <= len(leaves) <= MOST_LEAVES:
            raise ValueError(f"observation: expected 1 to {MOST_LEAVES} arrays, got {len(leaves)}")
        total = sum(math.prod(leaf.shape) for _, leaf in leaves)
        if total > MOST_ELEMENTS:
            raise ValueError(
                f"observation: expected at most {MOST_ELEMENTS} elements over all arrays, got "
                f"{total}"
            )
        if self.has_mask:
            _check_mask(self)
        if isinstance(self.action, TokensSpec) and self.observation != self.action.turn:
            raise ValueError(
                f"observation: expected turns, {shown_array(self.action.turn)}, of {self.action}"
            )

    @property
    def has_mask(self) -> bool:
        """True if observations have an action mask."""
        return has_mask(self.observation)

    def without_mask(self) -> "EnvSpec":
        """The spec that networks are built for: of observations as `without_mask` gives them."""
        return replace(self, observation=without_mask(self.observation))

    def leaves(self) -> list[tuple[str, ArraySpec]]:
        """The observation's arrays with their paths, e.g. `observation.image`, in wire order."""
        tree = self.observation
        return [(path, spec) for path, spec, _ in _walk("observation", tree, tree)]

    def unflatten(self, leaves: list[Any]) -> Tree:
        """The observation tree with `leaves`, in wire order, in place of its specs."""
        iterator = iter(leaves)  # taken in the order in which `_walk` gives them
        tree = _rebuild(self.observation, iterator)
        assert next(iterator, None) is None, "more leaves than the spec has"
        return tree

    def flatten(self, observation: Tree) -> list[Any]:
        """The leaves of an observation tree of this spec, in wire order.

        Raises KeyError, TypeError, ValueError or IndexError for a tree of another structure.
        """
        return [leaf for *_, leaf in _walk("observation", self.observation, observation)]


def has_mask(observation: Tree) -> bool:
    """True if an observation, or a tree of its specs, has an action mask."""
    return isinstance(observation, Mapping) and ACTION_MASK in observation


def without_mask(observation: Tree) -> Tree:
    """An observation, or a tree of its specs, without its action mask.

    `observation` alone next to the mask is taken out of the dict: an environment that gives its
    mask in `info` looks as it would without one.
    """
    if not has_mask(observation):
        return observation
    rest = {key: item for key, item in observation.items() if key != ACTION_MASK}
    return rest["observation"] if rest.keys() == {"observation"} else rest


def _check_mask(spec: EnvSpec) -> None:
    mask, action, path = spec.observation[ACTION_MASK], spec.action, f"observation.{ACTION_MASK}"
    if not isinstance(action, DiscreteSpec):
        raise ValueError(f"{path}: expected one discrete action to mask, got {action}")
    if mask != ArraySpec((action.num_actions,), "bool"):
        got = shown_array(mask) if isinstance(mask, ArraySpec) else f"{type(mask).__name__}"
        raise ValueError(
            f"{path}: expected bool[{action.num_actions}], one for each action, got {got}"
        )
    if len(spec.observation) == 1:
        raise ValueError(f"{path}: expected other arrays next to it, got none")


def _check_shape(shape: Any, most_elements: int) -> None:
    is_shape = isinstance(shape, tuple) and len(shape) <= MOST_DIMENSIONS
    # `True` is an int to Python.
    is_shape = is_shape and all(type(size) is int and size > 0 for size in shape)
    if not is_shape or math.prod(shape) > most_elements:
        raise ValueError(
            f"expected a shape of at most {MOST_DIMENSIONS} sizes, each at least 1, and at most "
            f"{most_elements} elements, got {shape!r:.60}"
        )


def shown_array(spec: ArraySpec | None) -> str:
    """A spec in a message: `float32[2, 3] of 0 to 1`."""
    if spec is None:
        return "nothing"
    kind = " categories" if spec.is_categorical else ""
    low, high = (
        f"{bound[0]:g}" if len(bound) == 1 else f"{bound!r:.60}" for bound in (spec.low, spec.high)
    )
    bounds = f" of {low} to {high}" if spec.low else ""
    return f"{spec.dtype}{list(spec.shape)}{kind}{bounds}"


def shown(text: str) -> str:
    """A path in a message: one line of printable characters, cut where it gets long."""
    # A key of a spec may hold anything.
    printable = text if text.isprintable() else ascii(text)[1:-1]
    return printable if len(printable) <= _LONGEST_SHOWN else f"{printable[:_LONGEST_SHOWN]}..."


def _walk(
    path: str, spec: Tree, value: Tree, level: int = 1
) -> Iterator[tuple[str, ArraySpec, Any]]:
    # The path of each array, its spec, and what a tree of the same structure has there.
    if isinstance(spec, ArraySpec):
        yield path, spec, value
        return
    if level >= MOST_LEVELS:
        raise ValueError(f"{shown(path)}: expected at most {MOST_LEVELS} levels of nesting")
    items: Iterable[tuple[Any, Tree, Tree]]
    if isinstance(spec, Mapping):
        if {*value} != {*spec}:
            raise KeyError(f"{shown(path)}: expected the keys {sorted(spec)}")
        items = ((key, spec[key], value[key]) for key in sorted(spec))
    else:
        items = zip(range(len(spec)), spec, value, strict=True)
    for key, part, item in items:
        yield from _walk(f"{path}.{key}", part, item, level + 1)


def _rebuild(tree: Tree, leaves: Iterator[Any]) -> Tree:
    if isinstance(tree, ArraySpec):
        return next(leaves)
    if isinstance(tree, Mapping):
        return {key: _rebuild(tree[key], leaves) for key in sorted(tree)}
    return tuple(_rebuild(item, leaves) for item in tree)
