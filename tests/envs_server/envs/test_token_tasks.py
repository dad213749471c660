"""The token tasks: their solutions are right, and nothing else is."""

from collections.abc import Callable

import numpy as np
import pytest

from envs_server.envs import token_tasks
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


def test_questions_differ_by_seed_and_keep_to_their_length() -> None:
    env = token_tasks.reverse(longest=5, shortest=2, letters=3)
    questions = [env.tokens.decode(env.reset(seed)) for seed in range(300)]
    assert {len(each) for each in questions} == {3, 4, 5, 6}
    assert len(set(questions)) > 100
    with pytest.raises(ValueError, match="shortest"):
        token_tasks.reverse(longest=2, shortest=3)


def test_bisection_finds_every_number() -> None:
    env = token_tasks.guess()
    for seed in range(100):
        turns = [env.tokens.decode(env.reset(seed))]
        turn, total = env.reset(seed), 0.0
        low, high = 0, 14
        # The player bisects by the turns alone, and says what the environment's solution is.
        while turn is not None:
            middle = (low + high) // 2
            assert env.tokens.decode(env.solution()) == str(middle)
            turn, reward = env.step(np.append(env.tokens.encode(str(middle)), env.tokens.end))
            total += reward
            turns.append("" if turn is None else env.tokens.decode(turn))
            low, high = (middle + 1, high) if turns[-1] == ">" else (low, middle - 1)
        assert total == env.info["exact"] == 1.0
        assert turns[0] == "?" and set(turns[1:-1]) <= {"<", ">"} and len(turns) <= 5


def test_the_same_answer_each_time_finds_one_number() -> None:
    env = token_tasks.guess(numbers=5, guesses=3)
    always = np.append(env.tokens.encode("2"), env.tokens.end)
    found = []
    for seed in range(300):
        env.reset(seed)
        while (step := env.step(always))[0] is not None:
            pass
        found.append(step[1])
    assert abs(np.mean(found) - 1 / 5) < 0.06
    env.reset(0)
    assert env.step(np.array([env.tokens.end]))[1] == 0.0
