"""Environments of skyrl-gym (NovaSky), which read and write text; the extra `skyrl`.

`make(env="gsm8k", data="questions.jsonl")` asks the questions of a file, in SkyRL's format: each
line is an object with `prompt`, a list of messages with `role` and `content`, and with the other
values that the environment takes, such as `reward_spec` with the right answer. Every tenth question
is held out, for evaluation. With a text `solution` in it `seedrl pretrain` learns that.

A factory of your own calls `SkyRLGym` with a function from a seed to such an object.
"""

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import skyrl_gym

from seedrl.specs import FIRST_HELD_OUT_SEED
from seedrl.token_env import TokenEnv, question_that_fits, text_vocabulary


class SkyRLGym(TokenEnv):
    """The dialogues of an environment, as bytes or as tokens of a published model.

    The reward is the environment's own. `info["exact"]` is 1 if the last one is at least 1, and the
    numbers of `get_metrics()` are there, too. A later turn that is too long loses its start.
    """

    def __init__(
        self,
        env: str,
        question: Callable[[int], Mapping[str, Any]],
        *,
        longest_turn: int = 512,
        longest_completion: int = 64,
        template: str = "{content}",
        answer: str = "",
        tokenizer: str = "",
        end: str = "",
        env_config: Mapping[str, Any] | None = None,
    ) -> None:
        """Args:
          env: its name in skyrl-gym, such as `gsm8k_multi_turn`.
          question: from a seed to an object of SkyRL's format; equal seeds, equal objects.
          longest_turn, longest_completion: in tokens; questions that are longer are left out.
          template: of a message, with `{content}` and possibly `{role}` in it.
          answer: what follows the messages of a turn, such as `<|im_start|>assistant\\n`.
          tokenizer, end: see `text_vocabulary`.
          env_config: values that the environment reads from its configuration.

        Raises ValueError for an environment that skyrl-gym does not know, or one without what it
        needs.
        """
        if env not in skyrl_gym.registry:
            known = ", ".join(sorted(skyrl_gym.registry))
            raise ValueError(f"env: expected one of {known}, got {env!r:.80}")
        if "{content}" not in template:
            raise ValueError(f"template: expected a text with {{content}}, got {template!r:.80}")
        self.tokens = text_vocabulary(tokenizer, end)
        self.longest_turn, self.longest_completion = longest_turn, longest_completion
        self._name, self._question = env, question
        self._env: Any = None
        self._config = SimpleNamespace(**env_config or {})
        self._template, self._answer = template, answer
        self._ask(0)  # what it refuses, it refuses before the run

    def _ask(self, seed: int) -> np.ndarray:
        self.close()
        self._row = self._question(seed)
        try:
            extras = dict(self._row)
            self._env = skyrl_gym.make(self._name, env_config=self._config, extras=extras)
            messages, _ = self._env.init(list(self._row["prompt"]))
            return self._turn(messages)
        except (AssertionError, AttributeError, KeyError, TypeError) as error:
            raise ValueError(
                f"expected a question for {self._name} of skyrl-gym, got one with "
                f"{', '.join(self._row)}: {type(error).__name__}: {error}"
            ) from error

    def _turn(self, messages: Sequence[Mapping[str, str]]) -> np.ndarray:
        text = "".join(
            self._template.replace("{role}", each["role"]).replace("{content}", each["content"])
            for each in messages
        )
        # A tool may have nothing to say, but no turn is empty.
        return self.tokens.encode(text + self._answer or "\n")

    def reset(self, seed: int) -> np.ndarray:
        return question_that_fits(self._ask, seed, self.longest_turn)

    def step(self, ids: np.ndarray) -> tuple[np.ndarray | None, float]:
        found = self._env.step(self.tokens.decode(ids))
        reward = float(found["reward"])
        if not found["done"]:
            return self._turn(found["observations"])[-self.longest_turn :], reward
        numbers = self._env.get_metrics().items()
        self.info = {name: float(x) for name, x in numbers if isinstance(x, int | float)}
        self.info |= {"exact": float(reward >= 1)}
        return None, reward

    def solution(self) -> np.ndarray:
        if "solution" not in self._row:
            raise NotImplementedError("expected questions with `solution`, got one without")
        return np.append(self.tokens.encode(self._row["solution"]), np.int32(self.tokens.end))

    def close(self) -> None:
        if self._env is not None:
            self._env.close()


def make(*, env: str, data: str, **arguments: Any) -> SkyRLGym:
    """Asks the questions of the file `data`. Raises ValueError for another one."""
    rows = _read(data)
    held_out, others = rows[::10], [row for number, row in enumerate(rows) if number % 10]

    def question(seed: int) -> dict[str, Any]:
        own = held_out if seed >= FIRST_HELD_OUT_SEED else others
        return own[seed % len(own)]

    return SkyRLGym(env, question, **arguments)


@functools.cache  # all environments of an env server ask the same ones
def _read(data: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    try:
        with Path(data).open(encoding="utf-8") as file:  # never a number, which is a descriptor
            rows.extend(map(json.loads, file))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(
            f"data: expected JSON objects, one a line, in {data}; line {len(rows) + 1}: {error}"
        ) from error
    if len(rows) < 2 or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"data: expected at least 2 JSON objects, one a line, in {data}")
    return rows
