"""Frame stacking: SEED RL's literal tables, boundaries between calls and a loop as oracle."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from seedrl.networks.frame_stack import stack_frames

jitted_stack = jax.jit(stack_frames)


def stacked(
    frames: list[int], previous: list[int], firsts: list[int]
) -> tuple[list[list[int]], list[int]]:
    """`stack_frames` of one stream of 1x1 frames; `firsts` are the FIRST rows."""
    rows = np.array(frames, np.uint8).reshape(-1, 1, 1, 1)
    before = np.array(previous, np.uint8).reshape(1, -1, 1, 1)
    is_first = np.isin(np.arange(len(frames)), firsts)[:, None]
    out, after = jitted_stack(rows, before, is_first)
    assert out.dtype == after.dtype == jnp.uint8
    return np.asarray(out)[:, 0, 0, 0].tolist(), np.asarray(after).reshape(-1).tolist()


def test_the_table_of_seed_rl() -> None:
    out, after = stacked([1, 2, 3, 4, 5, 6, 7, 8], [0, 0, 0], [])
    assert out == [
        [1, 0, 0, 0],
        [2, 1, 0, 0],
        [3, 2, 1, 0],
        [4, 3, 2, 1],
        [5, 4, 3, 2],
        [6, 5, 4, 3],
        [7, 6, 5, 4],
        [8, 7, 6, 5],
    ]
    assert after == [8, 7, 6]


def test_nothing_crosses_the_start_of_an_episode() -> None:
    # SEED RL's stream 3 … 8 after the frames 2 and 1, an episode starting with frame 7.
    out, after = stacked([3, 4, 5, 6, 7, 8], [2, 1, 0], [4])
    assert out[3:] == [[6, 5, 4, 3], [7, 0, 0, 0], [8, 7, 0, 0]]
    assert after == [8, 7, 0]


def test_an_episode_may_start_on_the_first_row() -> None:
    assert stacked([2], [1, 0, 0], [0]) == ([[2, 0, 0, 0]], [2, 0, 0])


def test_an_episode_that_starts_on_the_last_row_leaves_only_its_own_frame() -> None:
    out, after = stacked([3, 4, 5], [2, 1, 9], [2])
    assert out == [[3, 2, 1, 9], [4, 3, 2, 1], [5, 0, 0, 0]]
    assert after == [5, 0, 0]
    assert stacked([6], after, [])[0] == [[6, 5, 0, 0]]


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
