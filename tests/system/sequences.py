"""Everything that a replay could give, as its own sampling gives it."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from seedrl.replay.buffer import Replay, ReplayState, Sample
from seedrl.types import Sequence


def sequence_reader(replay: Replay) -> Callable[[ReplayState, np.ndarray], Sequence]:
    """A function of a replay on the host and places `[n]`: leaves `[T, n, ...]`, carry `[n]`.

    It is compiled once, whatever n.
    """

    @jax.jit
    def sample_all(state: ReplayState) -> Sample:
        # With the same mass in every place, as many draws as places are one of each, in order.
        mass = jnp.ones_like(state.sampling_weight)
        return replay.sample(state._replace(sampling_weight=mass), jax.random.PRNGKey(0), len(mass))

    def read(state: ReplayState, starts: np.ndarray) -> Sequence:
        sample = jax.tree.map(np.asarray, sample_all(state))
        np.testing.assert_array_equal(sample.index, np.arange(len(state.sampling_weight)))
        steps, carry = sample.sequence

        return Sequence(
            jax.tree.map(lambda leaf: leaf[:, starts], steps),
            jax.tree.map(lambda leaf: leaf[starts], carry),
        )

    return read
