"""Environments of token ids: a question, completions, a reward. Imports numpy only.

Text stays here: an env server sends and receives ids, so nothing is ever tokenized twice.
"""

import abc
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from seedrl.specs import TokensSpec


class Vocabulary(Protocol):
    """Text as ids. Any tokenizer with these four is one.

    One with `alphabet`, the character of each id from 0 on, is read on the dashboard.
    """

    size: int  # number of ids
    end: int  # the id that ends a completion

    # Ids of a text, `[n] int32`.
    def encode(self, text: str) -> np.ndarray: ...
    # Text of ids, up to the first `end`.
    def decode(self, ids: np.ndarray) -> str: ...


class BytesVocabulary:
    """The vocabulary of all texts: the 256 bytes of UTF-8, and `end`, 256."""

    size, end = 257, 256
    alphabet = "".join(map(chr, range(256)))  # as people read them: Latin-1

    def encode(self, text: str) -> np.ndarray:
        return np.frombuffer(text.encode(), np.uint8).astype(np.int32)

    def decode(self, ids: np.ndarray) -> str:
        """Bytes that are no UTF-8 become U+FFFD."""
        return bytes(before_end(ids, self.end).tolist()).decode(errors="replace")


bytes_vocabulary = BytesVocabulary


class CharactersVocabulary:
    """The characters of an alphabet, then `end`. Raises ValueError if one occurs twice."""

    def __init__(self, alphabet: str) -> None:
        if not alphabet or len(set(alphabet)) != len(alphabet):
            raise ValueError(f"alphabet: expected different characters, got {alphabet!r:.80}")
        self.alphabet, self._ids = alphabet, {each: i for i, each in enumerate(alphabet)}
        self.end = len(alphabet)
        self.size = self.end + 1

    def encode(self, text: str) -> np.ndarray:
        """Raises ValueError for a character that is not in the alphabet."""
        if unknown := set(text) - self._ids.keys():
            raise ValueError(f"expected characters of {self.alphabet!r}, got {sorted(unknown)}")
        return np.array([self._ids[each] for each in text], np.int32)

    def decode(self, ids: np.ndarray) -> str:
        return "".join(self.alphabet[each] for each in before_end(ids, self.end).tolist())


class TokenizerVocabulary:
    """The tokens of a `tokenizer.json`, as published with language models; the extra `tokenizers`.

    Text is encoded as it is: no token is added at its start or end, and special tokens in it
    (`<|im_start|>`) are read as such. They stay in decoded text.
    """

    def __init__(self, file: str | os.PathLike[str], *, end: str) -> None:
        """`end`: the token that ends a completion, such as `<|im_end|>`.

        Raises ValueError for another file, or for an `end` that is no token of it.
        """
        from tokenizers import Tokenizer  # most env servers need none

        try:
            self._tokenizer = Tokenizer.from_file(os.fspath(file))
        except Exception as error:  # the package raises no other type
            raise ValueError(f"expected a tokenizer.json, got {file}: {error}") from error
        found = self._tokenizer.token_to_id(end)
        if found is None:
            raise ValueError(f"end: expected a token of {file}, got {end!r:.80}")
        self.end: int = found
        # Ids may have gaps.
        self.size = 1 + max(self._tokenizer.get_vocab().values())

    def encode(self, text: str) -> np.ndarray:
        return np.array(self._tokenizer.encode(text, add_special_tokens=False).ids, np.int32)

    def decode(self, ids: np.ndarray) -> str:
        own = before_end(ids, self.end).tolist()
        return str(self._tokenizer.decode(own, skip_special_tokens=False))


@functools.cache  # all environments of a process share one: it has some megabytes
def text_vocabulary(tokenizer: str = "", end: str = "") -> Vocabulary:
    """That of a `tokenizer.json` and its `end`, see `TokenizerVocabulary`; without them bytes.

    Raises ValueError for an `end` alone.
    """
    if end and not tokenizer:
        raise ValueError(f"tokenizer: expected the file of which {end!r:.80} is a token, got none")
    return TokenizerVocabulary(tokenizer, end=end) if tokenizer else BytesVocabulary()


def question_that_fits(
    ask: Callable[[int], np.ndarray], seed: int, longest_turn: int
) -> np.ndarray:
    """The ids of the first question of `ask(seed)`, `ask(seed + 1)`, ... that is short enough.

    Raises ValueError if a hundred in a row are too long: then nearly all are.
    """
    for number in range(100):
        if len(ids := ask(seed + number)) <= longest_turn:
            return ids
    raise ValueError(
        f"longest_turn: expected room for a question of {len(ids)} tokens, got {longest_turn}"
    )


def before_end(ids: np.ndarray, end: int) -> np.ndarray:
    """The ids up to the first `end`, without it."""
    ends = np.flatnonzero(np.asarray(ids) == end)
    return np.asarray(ids)[: ends[0] if ends.size else None]


class TokenEnv(abc.ABC):
    """An environment that asks and rewards in token ids. One episode is one dialogue.

    Attributes:
      tokens: its vocabulary.
      longest_turn: most ids of a turn of the environment.
      longest_completion: most ids of a completion, `tokens.end` included; a longer one is cut.
      info: numbers of the episode, for `environment.metrics`; read after its last step.
    """

    tokens: Vocabulary
    longest_turn: int
    longest_completion: int
    info: Mapping[str, float] = {}  # an instance sets its own

    @abc.abstractmethod
    def reset(self, seed: int) -> Sequence[int] | np.ndarray:
        """Starts an episode; returns the ids of its first turn. Equal seeds ask equal questions."""

    @abc.abstractmethod
    def step(self, ids: np.ndarray) -> tuple[Sequence[int] | np.ndarray | None, float]:
        """Takes a completion; returns the next turn, or None at the end, and the reward.

        `ids [n] int32` end with `tokens.end`, unless the completion was cut.
        """

    def solution(self) -> Sequence[int] | np.ndarray:
        """A right completion of the present turn, `tokens.end` included, for `seedrl pretrain`.

        Raises NotImplementedError if the environment has none.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method solution()")

    @property
    def spec(self) -> TokensSpec:
        """Sizes and vocabulary. Raises ValueError for a size out of range."""
        names = ("tokens", "longest_turn", "longest_completion")
        if missing := [name for name in names if not hasattr(self, name)]:
            raise ValueError(f"expected a TokenEnv with {', '.join(names)}, got no {missing[0]}")
        sizes = (self.longest_turn, self.longest_completion)
        alphabet = getattr(self.tokens, "alphabet", "")
        return TokensSpec(self.tokens.size, *sizes, self.tokens.end, alphabet)
