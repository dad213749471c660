"""Catch, played by hand."""

import numpy as np

from envs_server.envs.catch import make


def test_one_episode_by_hand() -> None:
    env = make(rows=4, columns=3)
    board, _ = env.reset(seed=0)
    column = int(board[0].argmax())
    expected = np.zeros((4, 3), np.float32)
    expected[0, column] = expected[3, 1] = 1
    np.testing.assert_array_equal(board, expected)
    moves = {0: [0, 1], 1: [1, 1], 2: [2, 1]}[column]
    for row, move in enumerate(moves, start=1):
        board, reward, terminated, truncated, _ = env.step(move)
        assert board[row, column] == 1 and board.sum() == 2
        assert (reward, terminated, truncated) == (0.0, False, False)
    board, reward, terminated, truncated, _ = env.step(1)
    assert (reward, terminated, truncated) == (1.0, True, False)
    assert board.sum() == 1  # the ball lies on the paddle


def test_it_renders_for_a_video() -> None:
    env = make(rows=4, columns=3, render_mode="rgb_array")
    board, _ = env.reset(seed=0)
    picture = env.render()
    assert picture.shape == (4 * 16, 3 * 16, 3) and picture.dtype == np.uint8
    np.testing.assert_array_equal(picture[8::16, 8::16, 0], 255 * board)
