"""The token tasks: their solutions are right, and nothing else is."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from envs_server.envs import token_tasks
from seedrl.specs import FIRST_HELD_OUT_SEED
from seedrl.token_env import TokenEnv


@pytest.mark.parametrize(
    ("make", "answer"),
    [
        (token_tasks.reverse, lambda question: question[-2::-1]),
        (token_tasks.addition, lambda question: str(eval_sum(question))),
    ],
)
def test_only_the_answer_pays(make: Callable[[], TokenEnv], answer: Callable[[str], str]) -> None:
    env = make()
    for seed in range(200):
        question = env.tokens.decode(env.reset(seed))
        solution = env.solution()
        assert env.tokens.decode(solution) == answer(question)
        assert len(solution) <= env.longest_completion
        for ids, reward in (
            (solution, 1.0),
            (solution[:-1], 0.0),
            (solution[1:], 0.0),
            (np.append(solution[:-1], [0, env.tokens.end]), 0.0),
            (solution[:0], 0.0),
        ):
            env.reset(seed)
            assert env.step(ids) == (None, reward)
            assert env.info == {"exact": reward}


def eval_sum(question: str) -> int:
    one, other = question.removesuffix("=").split("+")
    return int(one) + int(other)


def test_numbers_can_be_written_from_their_least_digit() -> None:
    env = token_tasks.addition(digits=2, least_first=True)
    plain = token_tasks.addition(digits=2)
    assert plain.tokens.decode(plain.reset(4)) == "72+94="
    assert env.tokens.decode(env.reset(4)) == "27+49="
    assert env.tokens.decode(env.solution()) == "661"
    for seed in range(200):
        question = env.tokens.decode(env.reset(seed))
        assert re.fullmatch("[0-9]{2}[+][0-9]{2}=", question)
        one, other = (int(number[::-1]) for number in question[:-1].split("+"))
        answer = env.tokens.decode(env.solution())
        assert len(answer) == 3 and int(answer[::-1]) == one + other
        assert env.step(env.solution()) == (None, 1.0)


def test_held_out_pairs_are_asked_by_held_out_seeds_only() -> None:
    env = token_tasks.addition(digits=1)

    def pairs(first_seed: int) -> set[str]:
        questions = (env.tokens.decode(env.reset(first_seed + seed)) for seed in range(1000))
        return {"+".join(sorted(question[:-1].split("+"))) for question in questions}

    training, held_out = pairs(0), pairs(FIRST_HELD_OUT_SEED)
    assert not training & held_out
    assert len(training) + len(held_out) == 55 and 2 <= len(held_out) <= 11


def test_questions_differ_by_seed_and_keep_to_their_length() -> None:
    env = token_tasks.reverse(longest=5, shortest=2, letters=3)
    questions = [env.tokens.decode(env.reset(seed)) for seed in range(300)]
    assert {len(each) for each in questions} == {3, 4, 5, 6}
    assert len(set(questions)) > 100
    with pytest.raises(ValueError, match="longest: expected at least 3"):
        token_tasks.reverse(longest=2, shortest=3)


def test_guesses_among_the_numbers_that_are_left_find_sixty_percent() -> None:
    env, found = token_tasks.guess(), []
    for seed in range(2_000):
        env.reset(seed)
        while (step := env.step(env.solution()))[0] is not None:
            pass
        found.append(step[1])
    # Exactly: f(n, k), a mean over the guess, of 1 / n and the parts below and above it.
    exact = np.zeros((5, 16))
    for k in range(1, 5):
        for n in range(1, 16):
            parts = [g * exact[k - 1, g] + (n - 1 - g) * exact[k - 1, n - 1 - g] for g in range(n)]
            exact[k, n] = (1 + np.mean(parts)) / n
    assert exact[4, 15] == pytest.approx(0.604, abs=5e-4)
    assert np.mean(found) == pytest.approx(exact[4, 15], abs=0.03)


def test_bisection_finds_every_number() -> None:
    env = token_tasks.guess()
    for seed in range(100):
        turns = [env.tokens.decode(env.reset(seed))]
        turn, total = env.reset(seed), 0.0
        low, high = 0, 14
        # By the turns alone.
        while turn is not None:
            middle = (low + high) // 2
            turn, reward = env.step(np.append(env.tokens.encode(str(middle)), env.tokens.end))
            total += reward
            turns.append("" if turn is None else env.tokens.decode(turn))
            low, high = (middle + 1, high) if turns[-1] == ">" else (low, middle - 1)
        assert total == env.info["exact"] == 1.0
        assert turns[0] == "?" and set(turns[1:-1]) <= {"<", ">"} and len(turns) <= 5


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        *(("7", 7), ("2+3*4", 14), ("2*3-4*5", -14), ("10-2-3", 5), ("3*2*2", 12), ("0*9+1", 1)),
        *((each, None) for each in ("", "+1", "1+", "1++2", "2(3)", "-1", "1 2", "1*-2", "\u0663")),
    ],
)
def test_products_come_before_sums(expression: str, value: int | None) -> None:
    assert token_tasks.value_of(expression) == value


def _said(env: TokenEnv, text: str) -> tuple[str | None, float]:
    # The answer to a completion of this text.
    turn, reward = env.step(np.append(env.tokens.encode(text), env.tokens.end))
    return (None if turn is None else env.tokens.decode(turn)), reward


def test_a_target_is_reached_with_each_number_once() -> None:
    env = token_tasks.countdown()
    assert env.tokens.decode(env.reset(5)) == "7,8,1=57"
    right, wrong = ("1+7*8", "8*7+1"), ("57", "7*8", "8*8-7", "7*8*1", "7*8+1+0", "7*8+1=", "")
    for answer in (*right, *wrong):
        env.reset(5)
        assert _said(env, answer) == (None, float(answer in right)), answer
    for seed in range(200):
        numbers, target = env.tokens.decode(env.reset(seed)).split("=")
        solution = env.solution()
        text = env.tokens.decode(solution)
        assert sorted(re.findall("[0-9]+", text)) == sorted(numbers.split(","))
        assert eval(text, {"__builtins__": {}}) == int(target) >= 0
        assert len(solution) <= env.longest_completion
        assert env.step(solution[:-1])[1] == 0.0
        assert env.step(solution) == (None, 1.0) and env.info == {"exact": 1.0}


def test_a_calculator_is_asked_before_the_answer() -> None:
    env = token_tasks.calculator()
    assert env.tokens.decode(env.reset(1)) == "47*51+75="
    # Calls are answered, the answer pays, and a third call is none.
    assert [_said(env, "2*3-10?"), _said(env, "2*?")] == [("-4", 0.0), ("!", 0.0)]
    assert _said(env, "2472") == (None, 1.0) and env.info == {"exact": 1.0}
    env.reset(1)
    assert _said(env, "1?") == _said(env, "1?") == ("1", 0.0)
    assert _said(env, "1?") == (None, 0.0) and env.info == {"exact": 0.0}
    env.reset(1)
    assert _said(env, "47*51+75") == (None, 0.0)
    for seed in range(200):
        question = env.tokens.decode(env.reset(seed))
        call = env.solution()
        assert env.tokens.decode(call) == question.replace("=", "?")
        value, _ = env.step(call)
        assert value is not None and len(value) <= env.longest_turn
        assert env.tokens.decode(value) == str(eval(question[:-1], {"__builtins__": {}}))
        answer = env.solution()
        assert max(len(call), len(answer)) <= env.longest_completion
        assert answer.tolist() == [*value, env.tokens.end]
        assert env.step(answer) == (None, 1.0)


@pytest.mark.parametrize(
    ("make", "arguments"),
    [
        *((token_tasks.countdown, each) for each in ({"numbers": 1}, {"largest": 0})),
        *((token_tasks.calculator, each) for each in ({"numbers": 1}, {"digits": 0}, {"calls": 0})),
    ],
)
def test_a_task_of_no_size_is_refused(make: Callable[..., TokenEnv], arguments: Any) -> None:
    with pytest.raises(ValueError, match=next(iter(arguments))):
        make(**arguments)
