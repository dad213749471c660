"""Frame stacking on the device: one frame per step is sent and stored, k are seen."""

import chex
import jax
import jax.numpy as jnp

from seedrl.types import Array


def stack_frames(frames: Array, previous_frames: Array, is_first: Array) -> tuple[Array, Array]:
    """The k newest frames of the episode at each row, newest first, zeros before its first frame.

    Position i at row t is frame t - i if no row of t - i + 1 … t is FIRST, otherwise 0. Splitting a
    stretch of rows into several calls changes nothing.

    Args:
      frames: `[T, B, *shape]`, any dtype; T at least 1.
      previous_frames: `[B, k - 1, *shape]`, the frames before row 0, newest first; zeros at the
        start. What belongs to an episode before a FIRST row is ignored.
      is_first: `[T, B] bool`.

    Returns:
      stacked `[T, B, *shape, k]` and the previous frames of the row after the last one.

    Source: Mnih et al. 2015; order and zeroing as in SEED RL's `stack_frames`.
    """
    chex.assert_equal_shape_prefix([frames, is_first], 2)
    chex.assert_type(is_first, bool)
    chex.assert_equal_shape_suffix([frames[0, 0], previous_frames[0, 0]], frames.ndim - 2)
    num_rows, num_previous = frames.shape[0], previous_frames.shape[1]
    oldest_first = jnp.moveaxis(previous_frames[:, ::-1], 1, 0)
    stream = jnp.concatenate([oldest_first, frames])
    since_first = _rows_since_first(is_first, at_least=num_previous)
    positions = []
    for age in range(num_previous + 1):
        start = num_previous - age
        belongs = since_first >= age
        belongs = belongs.reshape(belongs.shape + (1,) * (frames.ndim - 2))
        frame = stream[start : start + num_rows]
        positions.append(jnp.where(belongs, frame, jnp.zeros((), frames.dtype)))
    stacked = jnp.stack(positions, axis=-1)
    return stacked, jnp.moveaxis(stacked[-1, ..., :num_previous], -1, 1)


def _rows_since_first(is_first: Array, *, at_least: int) -> Array:
    # Without a FIRST row so far, all previous frames count: they were cleaned by the call before.
    rows = jnp.arange(is_first.shape[0], dtype=jnp.int32)[:, None]
    newest_first = jax.lax.cummax(jnp.where(is_first, rows, -at_least), axis=0)
    return rows - newest_first
