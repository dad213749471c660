"""Tasks of token ids with answers that can be checked: for GRPO on two cores.

| factory | question | answer |
|---|---|---|
| `reverse` | a random word, `bkdq=` | the word from its end, `qdkb` |
| `addition` | two random numbers, `57+8=` | their sum, `65` |
| `countdown` | numbers and a target, `3,7,2=13` | a way to it by `+`, `-` and `*`, `7+2*3` |
| `guess` | `?`, then whether the number is above (`>`) or below (`<`) each guess | the number |
| `calculator` | `23*4+17=`; to `23*4+17?` its value, `109` | the value |

The reward is 1 for the answer and 0 for any other; `info["exact"]` is the same number.
"""

import math
import re
import zlib

import numpy as np

from seedrl.specs import FIRST_HELD_OUT_SEED
from seedrl.token_env import CharactersVocabulary, TokenEnv

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_DIGITS = "0123456789"


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


class _Question(TokenEnv):
    # One question, one answer: `ask` draws both.

    def __init__(self, alphabet: str, *, longest_question: int, longest_answer: int) -> None:
        self.tokens = CharactersVocabulary(alphabet)
        self.longest_turn = longest_question
        # Room for one token too many, and for the end.
        self.longest_completion = longest_answer + 2
        self._answer, self._is_held_out = "", False

    def ask(self, random: np.random.Generator) -> tuple[str, str]:
        raise NotImplementedError

    def is_right(self, answer: str) -> bool:
        return answer == self._answer

    def reset(self, seed: int) -> np.ndarray:
        self._is_held_out = seed >= FIRST_HELD_OUT_SEED
        question, self._answer = self.ask(np.random.default_rng(seed))
        return self.tokens.encode(question)

    def step(self, ids: np.ndarray) -> tuple[np.ndarray | None, float]:
        # A completion without an end has not stopped where the answer does.
        is_ended = len(ids) > 0 and ids[-1] == self.tokens.end
        is_exact = is_ended and self.is_right(self.tokens.decode(ids))
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
    """The sum of two numbers of at most `digits` digits. Raises ValueError for less than one.

    With `least_first` all numbers are written from their least digit, with zeros up to equal
    lengths: `75+80=560` is 57 + 8 = 65. Then a digit of the answer depends on no later one.

    A tenth of all pairs of numbers is held out, in either order: seeds from `FIRST_HELD_OUT_SEED`
    ask those, lower seeds the others.
    """

    def __init__(self, *, digits: int = 2, least_first: bool = False) -> None:
        if digits < 1:
            raise ValueError(f"digits: expected at least 1, got {digits}")
        super().__init__(f"{_DIGITS}+=", longest_question=2 * digits + 2, longest_answer=digits + 1)
        self._digits, self._least_first = digits, least_first

    def ask(self, random: np.random.Generator) -> tuple[str, str]:
        while True:
            one, other = random.integers(10**self._digits, size=2).tolist()
            if _is_held_out(one, other) == self._is_held_out:
                break
        texts = [str(number) for number in (one, other, one + other)]
        if self._least_first:
            widths = (self._digits, self._digits, self._digits + 1)
            texts = [text.zfill(width)[::-1] for text, width in zip(texts, widths, strict=True)]
        return f"{texts[0]}+{texts[1]}=", texts[2]


def _is_held_out(one: int, other: int) -> bool:
    # By a hash: pairs of every kind are in both parts.
    return zlib.crc32(f"{min(one, other)}+{max(one, other)}".encode()) % 10 == 0


class Countdown(_Question):
    """A target, to be reached with each of `numbers` numbers of 1 to `largest` once, in any order.

    Raises ValueError for fewer than two numbers, or a `largest` below 1.
    """

    def __init__(self, *, numbers: int = 3, largest: int = 9) -> None:
        if numbers < 2 or largest < 1:
            got = f"numbers={numbers}, largest={largest}"
            raise ValueError(f"expected at least 2 numbers, of at least 1, got {got}")
        # The target is no longer than a product of all of them.
        longest = numbers * (len(str(largest)) + 1)
        super().__init__(
            f"{_DIGITS}+-*,=", longest_question=2 * longest, longest_answer=longest - 1
        )
        self._count, self._largest, self._target = numbers, largest, 0
        self._numbers: list[str] = []

    def ask(self, random: np.random.Generator) -> tuple[str, str]:
        drawn = random.integers(1, self._largest, self._count, endpoint=True)
        self._numbers = [str(number) for number in drawn]
        order = random.permutation(self._count)
        expression, self._target = _random_expression(random, [self._numbers[i] for i in order])
        return f"{','.join(self._numbers)}={self._target}", expression

    def is_right(self, answer: str) -> bool:
        uses_all = sorted(re.split(r"[+*-]", answer)) == sorted(self._numbers)
        return uses_all and value_of(answer) == self._target


class Guess(TokenEnv):
    """A number below `numbers`, to be guessed in at most `guesses` turns.

    Each wrong guess is answered with `>` if the number is larger, else `<`. Bisection finds it with
    the default, and needs memory of earlier turns. Guesses at random among the numbers that are
    left find 60 %; they are the solution. Without memory of earlier turns, the best three guesses
    find 20 %, the best probabilities of guesses 35 %.

    Raises ValueError for fewer than one number or guess.
    """

    longest_turn = 1

    def __init__(self, *, numbers: int = 15, guesses: int = 4) -> None:
        if numbers < 1 or guesses < 1:
            got = f"numbers={numbers}, guesses={guesses}"
            raise ValueError(f"expected at least 1 of each, got {got}")
        self.tokens = CharactersVocabulary(f"{_DIGITS}?<>")
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


class Calculator(_Question):
    """The value of `numbers` numbers of at most `digits` digits, with a calculator as a tool.

    A completion that ends with `?` is a call: the next turn is the value of its expression, or `!`
    for what is none. Any other completion is the answer. After `calls` calls another one ends the
    episode. Raises ValueError for fewer than one of each, or one number.
    """

    def __init__(self, *, numbers: int = 3, digits: int = 2, calls: int = 2) -> None:
        if numbers < 2 or digits < 1 or calls < 1:
            got = f"numbers={numbers}, digits={digits}, calls={calls}"
            raise ValueError(f"expected at least 2 numbers, 1 digit and 1 call, got {got}")
        # A value is no longer than its expression.
        longest = numbers * (digits + 1)
        super().__init__(f"{_DIGITS}+-*=?!", longest_question=longest + 2, longest_answer=longest)
        self._shape, self._end, self._calls = (numbers, calls), 10**digits, 0
        self._expression = ""

    def ask(self, random: np.random.Generator) -> tuple[str, str]:
        count, self._calls = self._shape
        numbers = [str(number) for number in random.integers(self._end, size=count)]
        self._expression, value = _random_expression(random, numbers)
        return f"{self._expression}=", str(value)

    def step(self, ids: np.ndarray) -> tuple[np.ndarray | None, float]:
        text = self.tokens.decode(ids)
        if not (text.endswith("?") and self._calls):
            return super().step(ids)
        self._calls -= 1
        value = value_of(text[:-1])
        return self.tokens.encode("!" if value is None else str(value)), 0.0

    def solution(self) -> np.ndarray:
        """One call with the whole expression, then its value."""
        if self._calls == self._shape[1]:
            return np.append(self.tokens.encode(f"{self._expression}?"), np.int32(self.tokens.end))
        return super().solution()


reverse = Reverse
addition = Addition
countdown = Countdown
guess = Guess
calculator = Calculator
