"""A `seedrl.TokenEnv` as a gymnasium environment, so that groups step it as any other."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, MultiDiscrete

from seedrl.specs import FIRST_HELD_OUT_SEED, MOST_SEED
from seedrl.token_env import TokenEnv
from seedrl.turns import turn_ids, turn_row


class TokenGym(gymnasium.Env[np.ndarray, np.ndarray]):
    """Steps a `TokenEnv`; observations and actions are the rows of `seedrl.turns`."""

    def __init__(self, env: TokenEnv) -> None:
        """Raises ValueError for sizes out of range."""
        self.env, self.tokens = env, env.spec
        turn = self.tokens.turn
        self.observation_space = Box(0, int(turn.high[0]), turn.shape, np.int32)
        int32: Any = np.int32  # gymnasium's types know int64 only
        space: Any = MultiDiscrete(self.tokens.largest.astype(np.int64) + 1, dtype=int32)
        space.tokens = self.tokens  # for `envs_server.spaces`; wrappers keep the space
        self.action_space = space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Asks a question of its own choice, or with `options["completion"]` as `step` does."""
        super().reset(seed=seed)
        if options and options["completion"][0]:
            return self._asked(options["completion"]), {}
        # Training names its questions; a player that does not, as `seedrl evaluate`, gets others.
        own = int(self.np_random.integers(FIRST_HELD_OUT_SEED, MOST_SEED))
        return turn_row(self.tokens, self.env.reset(own)), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Takes a completion, or asks the question of a seed instead."""
        if action[0] and not action[1]:
            return self._asked(action), 0.0, False, False, {}
        result = self.env.step(turn_ids(action))
        if not isinstance(result, tuple) or len(result) != 2:
            raise TypeError(f"expected step to return (turn or None, reward), got {result!r:.80}")
        turn, reward = result
        is_over = turn is None
        row = turn_row(self.tokens, () if turn is None else turn)
        return row, reward, is_over, False, dict(self.env.info) if is_over else {}

    def close(self) -> None:
        """Closes an environment that can be closed."""
        if callable(close := getattr(self.env, "close", None)):
            close()

    def _asked(self, completion: np.ndarray) -> np.ndarray:
        seed = int(completion[0]) - 1
        return turn_row(self.tokens, self.env.reset(seed), seed)
