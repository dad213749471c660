"""Everything that a replay could give, as its own sampling gives it."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from seedrl.replay.replay import Replay, ReplayState
from seedrl.types import Sequence


def sequence_reader(replay: Replay) -> Callable[[ReplayState, np.ndarray], Sequence]:
    """A function of a replay on the host and places `[n]`: leaves `[T, n, ...]`, carry `[n]`.

    It is compiled once, whatever n.
    """

    def sample(state: ReplayState, start: Any) -> Any:
        # With all mass in one place, that is what sampling must return.
        only = state.mass.at[:].set(0.0).at[start].set(1.0)
        return replay.sample(state._replace(mass=only), jax.random.PRNGKey(0), 1)

    @functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 1})
    def sample_all(state: ReplayState, starts: Any) -> Any:
        return jax.lax.map(functools.partial(sample, state), starts)

    def read(state: ReplayState, starts: np.ndarray) -> Sequence:
        padded = np.zeros(len(state.mass), np.int32)
        padded[: len(starts)] = starts
        samples = sample_all(state, padded)
        samples = jax.tree.map(lambda leaf: np.asarray(leaf)[: len(starts)], samples)
        np.testing.assert_array_equal(samples.index[:, 0], starts)
        steps, carry = samples.sequence
        return Sequence(
            jax.tree.map(lambda leaf: np.moveaxis(leaf[:, :, 0], 1, 0), steps),
            jax.tree.map(lambda leaf: leaf[:, 0], carry),
        )

    return read
