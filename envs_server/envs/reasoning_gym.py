"""Questions of reasoning-gym (Stojanovski et al. 2025), whose answers a program scores.

`make(dataset="leg_counting")` asks the questions of one of its 100 datasets; the extra `reasoning`.
The reward is the dataset's own score of the completion, 0 to 1; `info["exact"]` is 1 for a score of
1. A completion without an end scores 0. A few datasets take up to a second for each question.
"""

import contextlib
from typing import Any

import numpy as np
from reasoning_gym import create_dataset

from seedrl.token_env import TokenEnv, question_that_fits, text_vocabulary


class ReasoningGym(TokenEnv):
    """The questions of a dataset, as bytes or as tokens of a published model."""

    def __init__(
        self,
        *,
        dataset: str,
        longest_turn: int = 512,
        longest_completion: int = 64,
        template: str = "{question}",
        tokenizer: str = "",
        end: str = "",
        **arguments: Any,
    ) -> None:
        """Args:
          dataset: its name in reasoning-gym; `arguments` are those of its configuration.
          longest_turn, longest_completion: in tokens; questions that are longer are left out.
          template: what is asked, with `{question}` in it, such as the chat template of a model.
          tokenizer, end: see `text_vocabulary`.

        Raises ValueError or TypeError for a dataset or arguments that reasoning-gym does not know.
        """
        if "{question}" not in template:
            raise ValueError(f"template: expected a text with {{question}}, got {template!r:.80}")
        self.tokens = text_vocabulary(tokenizer, end)
        self.longest_turn, self.longest_completion = longest_turn, longest_completion
        self._name, self._arguments, self._template = dataset, arguments, template
        self._draw(0)  # what it refuses, it refuses before the run

    def _draw(self, seed: int) -> np.ndarray:
        # A dataset of its own for each seed: some have drawn their items when they are made.
        self._dataset = create_dataset(self._name, seed=seed, size=1, **self._arguments)
        self._entry = self._dataset[0]
        return self.tokens.encode(self._template.replace("{question}", self._entry["question"]))

    def reset(self, seed: int) -> np.ndarray:
        return question_that_fits(self._draw, seed, self.longest_turn)

    def step(self, ids: np.ndarray) -> tuple[None, float]:
        score = 0.0
        if len(ids) > 0 and ids[-1] == self.tokens.end:
            # Some datasets raise anything at an answer of another form: then it is wrong, and the
            # environment has not failed.
            with contextlib.suppress(Exception):
                score = float(self._dataset.score_answer(self.tokens.decode(ids), self._entry))
        self.info = {"exact": float(score == 1.0)}
        return None, score

    def solution(self) -> np.ndarray:
        answer = self._entry["answer"]
        if answer is None:
            raise NotImplementedError(f"reasoning-gym has no solution of a {self._name} question")
        return np.append(self.tokens.encode(answer), np.int32(self.tokens.end))


make = ReasoningGym
