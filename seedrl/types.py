"""The data that flows through the system: time steps, stored steps, pages and sequences.

Every type here is a pytree whose leaves are numpy or JAX arrays; this module imports neither.
"""

import enum
from typing import Any, NamedTuple

# Nested dicts and tuples of arrays, or `()` where there is nothing.
Tree = Any
Array = Any


class StepType(enum.IntEnum):
    """Where in its episode a time step lies (dm_env semantics).

    Where every message passes, arrays are compared with plain numbers that were taken of it once:
    `_LAST = StepType.LAST.value`. With a member, which it must first find out to be a number, numpy
    takes five times as long, and `value` is a function in Python.
    """

    FIRST = 0
    MID = 1
    LAST = 2


# On the wire only, and only of token environments: LAST, but the observation is already the next
# episode's question. See `Tokens` in the wire's .proto.
NEXT = 3


class TimeStep(NamedTuple):
    """What an environment says of one step (Muldal et al. 2019, dm_env).

    Attributes:
      step_type: `[...] uint8`, a `StepType`. An action taken on LAST is ignored; the step after it
        is FIRST.
      reward: `[...] float32`, the consequence of the previous action; 0 on FIRST.
      discount: `[...] float32` in {0, 1}: 0 on LAST if the episode terminated; 1 elsewhere, so a
        LAST with discount 1 was truncated and bootstraps from its own observation.
      observation: tree of `[..., *shape]`; on LAST the true last observation of the episode.
    """

    step_type: Array
    reward: Array
    discount: Array
    observation: Tree


class StoredStep(NamedTuple):
    """One time step of experience, and what was done on it.

    Attributes:
      timestep: see `TimeStep`.
      action: `[...] int32`, `[..., *shape] int32` of MultiDiscrete, or `[..., *shape] float32` of a
        box: what the agent emitted to be executed (not the greedy action).
      version: `[...] int32`, the number of updates behind the parameters that acted.
      extras: tree of `[..., ...]`: data of acting that the update needs, such as Q-values.
    """

    timestep: TimeStep
    action: Array
    version: Array
    extras: Tree


class Page(NamedTuple):
    """A fixed number K of consecutive steps of one slot: the unit that replay stores.

    Attributes:
      steps: `[K, ...]`.
      carry: tree of `[...]`: the agent's carry before the first step, before any reset.
    """

    steps: StoredStep
    carry: Tree


class Sequence(NamedTuple):
    """A batch of sequences as losses see them, time-major.

    Attributes:
      steps: `[T, B, ...]`. May span episodes: a FIRST step resets the carry.
      carry: tree of `[B, ...]`: the carry before the first step, before any reset.
    """

    steps: StoredStep
    carry: Tree
