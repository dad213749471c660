"""What a network carries from one time step to the next: recurrent state, and stacked frames.

Both are reset at the start of every episode, before its first observation is consumed.
"""

from typing import Any, NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from seedrl.types import Array, Tree

_KERNEL_INIT = nn.initializers.lecun_normal()  # orthogonal takes seconds to compile (QR)


class LSTMCarry(NamedTuple):
    """State of an LSTM: `hidden` and `cell`, both `[B, H] float32`."""

    hidden: Array
    cell: Array


class LSTM(nn.Module):
    """A long short-term memory whose state is zeroed before a FIRST time step is consumed.

      i, f, g, o = W x_t + U h_{t-1} + b
      c_t = σ(f) c_{t-1} + σ(i) tanh(g),  h_t = σ(o) tanh(c_t)

    The state and the gates are float32 at any `dtype`; only the matrix products use it.

    Source: Hochreiter and Schmidhuber 1997; the forget gate's bias starts at 1 as in Jozefowicz et
    al. 2015.
    """

    size: int
    dtype: str = "float32"

    @nn.compact
    def __call__(self, carry: LSTMCarry, inputs: Array, is_first: Array) -> tuple[Array, LSTMCarry]:
        """`inputs [T, B, D]`, `is_first [T, B] bool` -> outputs `[T, B, H] float32`, carry."""
        chex.assert_rank([inputs, is_first], [3, 2])
        project = nn.Dense(
            4 * self.size, dtype=self.dtype, bias_init=_forget_gate_of_one, name="input"
        )
        projected = project(inputs)  # W x of all time steps at once, outside the scan
        shape = (self.size, 4 * self.size)
        # By default an initializer has the widest floats: float64 with JAX_ENABLE_X64.
        kernel = self.param("recurrent_kernel", _KERNEL_INIT, shape, jnp.float32)
        kernel = kernel.astype(self.dtype)
        # σ(x) = tanh(x/2)/2 + 1/2: one tanh over all four gates takes a third of the time that
        # four separate activations take on a CPU.
        quarter = (1, self.size)
        slope = jnp.concatenate([jnp.full(quarter, s) for s in (0.5, 0.5, 1.0, 0.5)], axis=-1)
        offset = 1 - slope

        def step(carry: LSTMCarry, inputs: tuple[Array, Array]) -> tuple[LSTMCarry, Array]:
            projected_t, is_first_t = inputs
            hidden, cell = _reset(carry, is_first_t)
            gates = projected_t.astype(jnp.float32) + _product(hidden, kernel)
            i, f, g, o = jnp.split(jnp.tanh(gates * slope) * slope + offset, 4, axis=-1)
            cell = f * cell + i * g
            hidden = o * jnp.tanh(cell)
            return LSTMCarry(hidden, cell), hidden

        # Not unrolled: 4 time steps at once made compiling 4 and gradients 1.4 times as long.
        carry, outputs = jax.lax.scan(step, carry, (projected, is_first))
        return outputs, carry

    @staticmethod
    def initial_carry(size: int, batch_size: int) -> LSTMCarry:
        zeros = jnp.zeros((batch_size, size), jnp.float32)
        return LSTMCarry(hidden=zeros, cell=jnp.zeros_like(zeros))


def _forget_gate_of_one(key: Array, shape: tuple[int, ...], dtype: Any) -> Array:
    del key
    quarter = (shape[0] // 4,)
    return jnp.concatenate([jnp.full(quarter, b, dtype) for b in (0.0, 1.0, 0.0, 0.0)])


def _reset(carry: Tree, is_first: Array) -> Tree:
    # A selection, not a product: whatever the old state holds, the new episode starts from zeros.
    return jax.tree.map(lambda leaf: jnp.where(is_first[:, None], 0.0, leaf), carry)


def _product(hidden: Array, kernel: Array) -> Array:
    return jnp.matmul(hidden.astype(kernel.dtype), kernel, preferred_element_type=jnp.float32)


def stack_frames(frames: Array, previous_frames: Array, is_first: Array) -> tuple[Array, Array]:
    """The k newest frames of the episode at each time step, newest first, zeros before its first.

    Frame i at time step t is that of t - i if none of t - i + 1 … t is FIRST, otherwise 0.

    `frames` is `[T, B, *shape]`, `previous_frames [B, k - 1, *shape]` those before, newest first,
    zeros at the start, `is_first [T, B] bool`. Returns `[T, B, *shape, k]`, and the previous frames
    of the time step after the last one.

    Source: Mnih et al. 2015; order and zeroing as in SEED RL's `stack_frames`.
    """
    chex.assert_equal_shape_prefix([frames, is_first], 2)
    chex.assert_type(is_first, bool)
    chex.assert_equal_shape_suffix([frames[0, 0], previous_frames[0, 0]], frames.ndim - 2)
    num_steps, num_previous = frames.shape[0], previous_frames.shape[1]
    oldest_first = jnp.moveaxis(previous_frames[:, ::-1], 1, 0)
    stream = jnp.concatenate([oldest_first, frames])
    # Without a FIRST so far, all previous frames count: they were cleaned by the call before.
    steps = jnp.arange(num_steps, dtype=jnp.int32)[:, None]
    since_first = steps - jax.lax.cummax(jnp.where(is_first, steps, -num_previous), axis=0)
    positions = []
    for age in range(num_previous + 1):
        start = num_previous - age
        belongs = since_first >= age
        belongs = belongs.reshape(belongs.shape + (1,) * (frames.ndim - 2))
        frame = stream[start : start + num_steps]
        positions.append(jnp.where(belongs, frame, jnp.zeros((), frames.dtype)))
    stacked = jnp.stack(positions, axis=-1)
    return stacked, jnp.moveaxis(stacked[-1, ..., :num_previous], -1, 1)
