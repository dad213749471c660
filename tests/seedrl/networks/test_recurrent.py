"""The LSTM against a loop in float64, and its reset."""

from typing import Any

import jax
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from seedrl.networks.recurrent import LSTM, LSTMCarry, stack_frames

T, B, D, H = 6, 3, 5, 4


jitted_stack = jax.jit(stack_frames)


CORE = LSTM(H)
APPLY = jax.jit(CORE.apply)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def looped_lstm(params: Any, carry: LSTMCarry, inputs: np.ndarray, is_first: np.ndarray):
    outputs = np.zeros((T, B, H))
    for b in range(B):
        h, c = np.float64(carry.hidden[b]), np.float64(carry.cell[b])
        for t in range(T):
            if is_first[t, b]:
                h, c = np.zeros(H), np.zeros(H)
            gates = inputs[t, b] @ params["input"]["kernel"] + params["input"]["bias"]
            i, f, g, o = np.split(gates + h @ params["recurrent_kernel"], 4)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
            outputs[t, b] = h
    return outputs


def random_case() -> tuple[Any, Any, np.ndarray, np.ndarray]:
    random = np.random.default_rng(1)
    inputs = random.normal(size=(T, B, D)).astype(np.float32)
    is_first = np.zeros((T, B), bool)
    is_first[[0, 3, 4], [0, 1, 1]] = True
    carry = CORE.initial_carry(H, B)
    params = jax.eval_shape(CORE.init, jax.random.key(0), carry, inputs, is_first)
    # Every parameter random: biases that start at zero would hide a mistake.
    params = jax.tree.map(lambda p: random.normal(size=p.shape).astype(np.float32), params)
    carry = jax.tree.map(lambda c: random.normal(size=c.shape).astype(np.float32), carry)
    return params, carry, inputs, is_first


def test_the_lstm_agrees_with_the_loop() -> None:
    params, carry, inputs, is_first = random_case()
    outputs, after = APPLY(params, carry, inputs, is_first)
    expected = looped_lstm(params["params"], carry, inputs, is_first)
    np.testing.assert_allclose(outputs, expected, atol=1e-5)
    np.testing.assert_array_equal(after.hidden, outputs[-1])


def test_a_reset_forgets_even_what_is_not_finite() -> None:
    params, carry, inputs, is_first = random_case()
    is_first[2] = [True, False, True]
    clean, _ = APPLY(params, carry, inputs, is_first)
    poison = jax.tree.map(lambda c: np.where([[True], [False], [True]], np.nan, c), carry)
    dirty, _ = APPLY(params, poison, inputs, is_first)
    np.testing.assert_array_equal(dirty[2:], clean[2:])
    np.testing.assert_array_equal(dirty[:, 1], clean[:, 1])
    assert np.isnan(dirty[1, 2]).all()  # the poison was there


def looped_stack(frames: np.ndarray, is_first: np.ndarray, k: int) -> np.ndarray:
    """The definition, row by row, for a stream that starts with zeros behind it."""
    out = np.zeros((*frames.shape, k), frames.dtype)
    for t, b in np.ndindex(is_first.shape):
        for i in range(min(k, t + 1)):
            if not is_first[t - i + 1 : t + 1, b].any():
                out[t, b, ..., i] = frames[t - i, b]
    return out


@settings(max_examples=25, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1), cut=st.sampled_from([1, 2, 6]))
def test_any_stream_agrees_with_the_loop_wherever_it_is_cut(seed: int, cut: int) -> None:
    random = np.random.default_rng(seed)
    frames = random.integers(1, 256, (8, 3, 2, 2), dtype=np.uint8)
    is_first = random.random((8, 3)) < 0.3
    before = np.zeros((3, 3, 2, 2), np.uint8)
    head, between = jitted_stack(frames[:cut], before, is_first[:cut])
    tail, _ = jitted_stack(frames[cut:], between, is_first[cut:])
    np.testing.assert_array_equal(np.concatenate([head, tail]), looped_stack(frames, is_first, 4))
