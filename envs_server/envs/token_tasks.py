"""Tasks of token ids with answers that can be checked: for GRPO on two cores.

| factory | question | answer |
|---|---|---|
| `reverse` | a random word, `bkdq=` | the word from its end, `qdkb` |
| `addition` | two random numbers, `57+8=` | their sum, `65` |
| `countdown` | numbers and a target, `3,7,2=13` | a way to it by `+`, `-` and `*`, `7+2*3` |
| `guess` | `?`, then whether the number is above (`>`) or below (`<`) each guess | the number |
| `calculator` | `23*4+17=`; to `23*4+17?` its value, `109` | the value |

The reward is 1 for the answer and 0 for any other; `info["exact"]` is the same number. All raise
ValueError for sizes that are too small.
"""

import math
import re
import string
import zlib
from collections.abc import Callable

import numpy as np

from seedrl.specs import FIRST_HELD_OUT_SEED
from seedrl.token_env import CharactersVocabulary, TokenEnv

_Ask = Callable[[int], tuple[str, str]]


def value_of(expression: str) -> int | None:
    """The value of sums, differences and products of numbers, `2*13-5`; None for other text.

    Products come first; there are no brackets and no signs.
    """
    if not re.fullmatch(r"[0-9]+([+*-][0-9]+)*", expression):
        return None
    terms = re.findall(r"([+-]?)([0-9*]+)", expression)
    products = (math.prod(map(int, factors.split("*"))) for _, factors in terms)
    return sum(-x if sign == "-" else x for (sign, _), x in zip(terms, products, strict=True))


def _random_expression(random: np.random.Generator, numbers: list[str]) -> tuple[str, int]:
    # Of these numbers, in this order, with its value, which is at least 0.
    while True:
        operators = ["", *random.choice(list("+-*"), len(numbers) - 1)]
        expression = "".join(map("".join, zip(operators, numbers, strict=True)))
        value = value_of(expression)
        if value is not None and value >= 0:
            return expression, value


def _require(least: int, **numbers: int) -> None:
    for name, number in numbers.items():
        if number < least:
            raise ValueError(f"{name}: expected at least {least}, got {number}")


class Question(TokenEnv):
    """A question, and the answer to it; `ask` draws both from a seed."""

    def __init__(self, alphabet: str, ask: _Ask, *, longest_turn: int, longest_answer: int) -> None:
        self.tokens, self.longest_turn = CharactersVocabulary(alphabet), longest_turn
        # Room for one token too many, and for the end.
        self.longest_completion = longest_answer + 2
        self._ask, self._question, self._answer = ask, "", ""

    def is_right(self, answer: str) -> bool:
        return answer == self._answer

    def reset(self, seed: int) -> np.ndarray:
        self._question, self._answer = self._ask(seed)
        return self.tokens.encode(self._question)

    def step(self, ids: np.ndarray) -> tuple[np.ndarray | None, float]:
        # A completion without an end has not stopped where the answer does.
        is_ended = len(ids) > 0 and ids[-1] == self.tokens.end
        is_exact = is_ended and self.is_right(self.tokens.decode(ids))
        self.info = {"exact": float(is_exact)}
        return None, float(is_exact)

    def solution(self) -> np.ndarray:
        return np.append(self.tokens.encode(self._answer), np.int32(self.tokens.end))


def reverse(*, longest: int = 8, shortest: int = 8, letters: int = 26) -> Question:
    """A word of `shortest` to `longest` letters, of the first `letters` of the alphabet."""
    _require(1, shortest=shortest, letters=letters)
    _require(shortest, longest=longest)
    alphabet = string.ascii_lowercase[:letters]

    def ask(seed: int) -> tuple[str, str]:
        random = np.random.default_rng(seed)
        length = random.integers(shortest, longest, endpoint=True)
        word = "".join(random.choice(list(alphabet), length))
        return f"{word}=", word[::-1]

    return Question(f"{alphabet}=", ask, longest_turn=longest + 1, longest_answer=longest)


def addition(*, digits: int = 2, least_first: bool = False) -> Question:
    """The sum of two numbers of at most `digits` digits.

    With `least_first` all numbers are written from their least digit, with zeros up to equal
    lengths: `75+80=560` is 57 + 8 = 65. Then a digit of the answer depends on no later one.

    A tenth of all pairs of numbers is held out, in either order: seeds from `FIRST_HELD_OUT_SEED`
    ask those, lower seeds the others.
    """
    _require(1, digits=digits)

    def ask(seed: int) -> tuple[str, str]:
        random = np.random.default_rng(seed)
        while True:
            one, other = random.integers(10**digits, size=2).tolist()
            # By a hash: pairs of every kind are in both parts.
            pair = f"{min(one, other)}+{max(one, other)}"
            is_held_out = zlib.crc32(pair.encode()) % 10 == 0
            if is_held_out == (seed >= FIRST_HELD_OUT_SEED):
                break
        texts = [str(number) for number in (one, other, one + other)]
        if least_first:
            widths = (digits, digits, digits + 1)
            texts = [text.zfill(width)[::-1] for text, width in zip(texts, widths, strict=True)]
        return f"{texts[0]}+{texts[1]}=", texts[2]

    alphabet = f"{string.digits}+="
    return Question(alphabet, ask, longest_turn=2 * digits + 2, longest_answer=digits + 1)


class Countdown(Question):
    """A target, to be reached with each of `numbers` numbers of 1 to `largest` once."""

    def __init__(self, *, numbers: int = 3, largest: int = 9) -> None:
        _require(2, numbers=numbers)
        _require(1, largest=largest)

        def ask(seed: int) -> tuple[str, str]:
            random = np.random.default_rng(seed)
            drawn = list(map(str, random.integers(1, largest, numbers, endpoint=True)))
            order = random.permutation(numbers)
            expression, target = _random_expression(random, [drawn[i] for i in order])
            return f"{','.join(drawn)}={target}", expression

        # The target is no longer than a product of all numbers.
        longest, alphabet = numbers * (len(str(largest)) + 1), f"{string.digits}+-*,="
        super().__init__(alphabet, ask, longest_turn=2 * longest, longest_answer=longest - 1)

    def is_right(self, answer: str) -> bool:
        numbers, target = self._question.split("=")
        uses_all = sorted(re.split(r"[+*-]", answer)) == sorted(numbers.split(","))
        return uses_all and value_of(answer) == int(target)


class Guess(TokenEnv):
    """A number below `numbers`, to be guessed in at most `guesses` turns.

    Each wrong guess is answered with `>` if the number is larger, else `<`. Bisection finds it with
    the default, and needs memory of earlier turns. Guesses at random among the numbers that are
    left find 60 %; they are the solution. Without memory of earlier turns, the best three guesses
    find 20 %, the best probabilities of guesses 35 %.
    """

    longest_turn = 1

    def __init__(self, *, numbers: int = 15, guesses: int = 4) -> None:
        _require(1, numbers=numbers, guesses=guesses)
        self.tokens = CharactersVocabulary(f"{string.digits}?<>")
        self.longest_completion = len(str(numbers - 1)) + 2
        self._numbers, self._guesses = numbers, guesses
        self._secret = self._left = 0
        self._bounds = (0, numbers - 1)
        self._random = np.random.default_rng()

    def reset(self, seed: int) -> np.ndarray:
        self._random = np.random.default_rng(seed)
        self._secret = int(self._random.integers(self._numbers))
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
        """Any of the numbers that are left."""
        low, high = self._bounds
        guess = self._random.integers(low, high + 1)
        return np.append(self.tokens.encode(str(guess)), np.int32(self.tokens.end))


class Calculator(Question):
    """The value of `numbers` numbers of at most `digits` digits, with a calculator as a tool.

    A completion that ends with `?` is a call: the next turn is the value of its expression, or `!`
    for what is none. Any other completion is the answer. After `calls` calls another one ends the
    episode.
    """

    def __init__(self, *, numbers: int = 3, digits: int = 2, calls: int = 2) -> None:
        _require(2, numbers=numbers)
        _require(1, digits=digits, calls=calls)

        def ask(seed: int) -> tuple[str, str]:
            random = np.random.default_rng(seed)
            drawn = list(map(str, random.integers(10**digits, size=numbers)))
            expression, value = _random_expression(random, drawn)
            self._left = calls
            return f"{expression}=", str(value)

        # A value is no longer than its expression.
        longest, alphabet = numbers * (digits + 1), f"{string.digits}+-*=?!"
        super().__init__(alphabet, ask, longest_turn=longest + 2, longest_answer=longest)
        self._calls = self._left = calls

    def step(self, ids: np.ndarray) -> tuple[np.ndarray | None, float]:
        text = self.tokens.decode(ids)
        if not (text.endswith("?") and self._left):
            return super().step(ids)
        self._left -= 1
        value = value_of(text[:-1])
        return self.tokens.encode("!" if value is None else str(value)), 0.0

    def solution(self) -> np.ndarray:
        """One call with the whole expression, then its value."""
        if self._left < self._calls:
            return super().solution()
        call = self._question.replace("=", "?")
        return np.append(self.tokens.encode(call), np.int32(self.tokens.end))


countdown, guess, calculator = Countdown, Guess, Calculator
