"""Tasks of token ids with answers that can be checked: for GRPO on two cores.

| factory | question | answer |
|---|---|---|
| `reverse` | a random word, `bkdq=` | the word from its end, `qdkb` |
| `addition` | two random numbers, `57+8=` | their sum, `65` |
| `guess` | `?`, then whether the number is above (`>`) or below (`<`) each guess | the number |

The reward is 1 for the answer and 0 for any other; `info["exact"]` is the same number.
"""

import numpy as np

from seedrl.token_env import CharactersVocabulary, TokenEnv

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


class _Question(TokenEnv):
    # One question, one answer: `ask` draws both.

    def __init__(self, alphabet: str, *, longest_question: int, longest_answer: int) -> None:
        self.tokens = CharactersVocabulary(alphabet)
        self.longest_turn = longest_question
        # Room for one token too many, and for the end.
        self.longest_completion = longest_answer + 2
        self._answer = ""

    def ask(self, random: np.random.Generator) -> tuple[str, str]:
        raise NotImplementedError

    def reset(self, seed: int) -> np.ndarray:
        question, self._answer = self.ask(np.random.default_rng(seed))
        return self.tokens.encode(question)

    def step(self, ids: np.ndarray) -> tuple[None, float]:
        # A completion without an end has not stopped where the answer does.
        is_ended = len(ids) > 0 and ids[-1] == self.tokens.end
        is_exact = is_ended and self.tokens.decode(ids) == self._answer
        self.info = {"exact": float(is_exact)}
        return None, float(is_exact)

    def solution(self) -> np.ndarray:
        return np.append(self.tokens.encode(self._answer), np.int32(self.tokens.end))


class Reverse(_Question):
    """A word of `shortest` to `longest` letters, of the first `letters` of the alphabet.

    Raises ValueError for other than 1 <= shortest <= longest, or 1 to 26 letters.
    """

    def __init__(self, *, longest: int = 8, shortest: int = 8, letters: int = 26) -> None:
        if not 1 <= shortest <= longest or not 1 <= letters <= len(_LETTERS):
            got = f"shortest={shortest}, longest={longest}, letters={letters}"
            raise ValueError(f"expected 1 <= shortest <= longest and 1 to 26 letters, got {got}")
        letters_of_words = _LETTERS[:letters]
        super().__init__(
            f"{letters_of_words}=", longest_question=longest + 1, longest_answer=longest
        )
        self._letters, self._lengths = list(letters_of_words), (shortest, longest)

    def ask(self, random: np.random.Generator) -> tuple[str, str]:
        length = random.integers(*self._lengths, endpoint=True)
        word = "".join(random.choice(self._letters, length))
        return f"{word}=", word[::-1]


class Addition(_Question):
    """The sum of two numbers of at most `digits` digits. Raises ValueError for less than one."""

    def __init__(self, *, digits: int = 2) -> None:
        if digits < 1:
            raise ValueError(f"digits: expected at least 1, got {digits}")
        super().__init__("0123456789+=", longest_question=2 * digits + 2, longest_answer=digits + 1)
        self._end = 10**digits

    def ask(self, random: np.random.Generator) -> tuple[str, str]:
        one, other = random.integers(self._end, size=2)
        return f"{one}+{other}=", str(one + other)


class Guess(TokenEnv):
    """A number below `numbers`, to be guessed in at most `guesses` turns.

    Each wrong guess is answered with `>` if the number is larger, else `<`. Bisection finds it with
    the default, and needs memory of earlier turns. Raises ValueError for fewer than one of each.
    """

    longest_turn = 1

    def __init__(self, *, numbers: int = 15, guesses: int = 4) -> None:
        if numbers < 1 or guesses < 1:
            got = f"numbers={numbers}, guesses={guesses}"
            raise ValueError(f"expected at least 1 of each, got {got}")
        self.tokens = CharactersVocabulary("0123456789?<>")
        self.longest_completion = len(str(numbers - 1)) + 2
        self._numbers, self._guesses = numbers, guesses
        self._secret = self._left = 0
        self._bounds = (0, numbers - 1)

    def reset(self, seed: int) -> np.ndarray:
        self._secret = int(np.random.default_rng(seed).integers(self._numbers))
        self._left, self._bounds = self._guesses, (0, self._numbers - 1)
        return self.tokens.encode("?")

    def step(self, ids: np.ndarray) -> tuple[np.ndarray | None, float]:
        self._left -= 1
        text = self.tokens.decode(ids)
        # What is no number is answered as one that is too large.
        guess = int(text) if text.isdecimal() else self._numbers
        is_exact = guess == self._secret
        self.info = {"exact": float(is_exact)}
        if is_exact or not self._left:
            return None, float(is_exact)
        low, high = self._bounds
        is_above = self._secret > guess
        self._bounds = (max(low, guess + 1), high) if is_above else (low, min(high, guess - 1))
        return self.tokens.encode(">" if is_above else "<"), 0.0

    def solution(self) -> np.ndarray:
        """The middle of what is left."""
        middle = str(sum(self._bounds) // 2)
        return np.append(self.tokens.encode(middle), np.int32(self.tokens.end))


reverse = Reverse
addition = Addition
guess = Guess
