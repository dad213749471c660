"""Token environments, stepped as any other."""

import numpy as np
import pytest

import seedrl
from envs_server.build import Recipe, build, build_one
from envs_server.failures import BuildError, EnvironmentFailedError, Failures
from envs_server.groups import EnvGroup
from envs_server.tokens import TokenGym
from seedrl.specs import FIRST_HELD_OUT_SEED, EnvSpec
from seedrl.token_env import text_vocabulary
from seedrl.turns import completion_row, turn_ids
from seedrl.types import NEXT, StepType


class Counting(seedrl.TokenEnv):
    """Asks for `turns` numbers, the first of which is the seed modulo 7; each right one pays 1."""

    tokens = seedrl.bytes_vocabulary()
    longest_turn, longest_completion = 2, 2

    def __init__(self, turns: int = 2) -> None:
        self._turns = turns

    def reset(self, seed: int) -> list[int]:
        self._number, self._asked = seed % 7, 1
        return [self._number]

    def step(self, ids: np.ndarray) -> tuple[list[int] | None, float]:
        reward = float(ids.tolist() == [self._number, self.tokens.end])
        self.info = {"asked": self._asked}
        if self._asked == self._turns:
            return None, reward
        self._asked += 1
        self._number += 1
        # A turn of three ids is too long.
        return [self._number] * (3 if self._turns > 2 else 1), reward


class Fragile(Counting):
    """Has no question of seed 6."""

    def reset(self, seed: int) -> list[int]:
        if seed == 6:
            raise RuntimeError("no such question")
        return super().reset(seed)


def _gym(turns: int = 2) -> TokenGym:
    return TokenGym(Counting(turns))


def test_a_dialogue_is_an_episode() -> None:
    env = _gym()
    env.reset(seed=3)
    row, reward, terminated, *_ = env.step(completion_row(env.tokens, (), 16))
    assert (row[0], turn_ids(row).tolist(), reward, terminated) == (17, [2], 0.0, False)
    row, reward, terminated, *_ = env.step(completion_row(env.tokens, [2, 256]))
    assert (row[0], turn_ids(row).tolist(), reward, terminated) == (0, [3], 1.0, False)
    row, reward, terminated, truncated, info = env.step(completion_row(env.tokens, [2, 256]))
    assert turn_ids(row).tolist() == []
    assert (reward, terminated, truncated, info) == (0.0, True, False, {"asked": 2})


def test_the_seed_decides_the_question_whatever_was_asked_before() -> None:
    one, other = _gym(), _gym()
    one.reset(seed=1)
    other.reset(seed=2)
    one.step(completion_row(one.tokens, [0]))
    asked = [env.step(completion_row(env.tokens, (), 5))[0].tolist() for env in (one, other)]
    assert asked[0] == asked[1]


def test_a_question_of_its_own_choice_is_held_out() -> None:
    """`seedrl evaluate` names no questions: half of those that it asked were training's."""
    asked: list[int] = []

    class Noting(Counting):
        def reset(self, seed: int) -> list[int]:
            asked.append(seed)
            return super().reset(seed)

    env = TokenGym(Noting())
    for seed in range(20):
        env.reset(seed=seed)
    assert min(asked) >= FIRST_HELD_OUT_SEED and len(set(asked)) == 20


def test_the_answer_to_an_end_may_ask_for_the_next_question() -> None:
    recipe, tokens = Recipe("fragile", {"turns": 1}, (), Fragile), Counting().spec
    environments = build(recipe, "auto", 1, failures=Failures(1))
    assert environments.reset([0])[0, 0] == 0
    # Of none, and of an environment that fails and is built again, the question is its own.
    for answer, asked in (
        (completion_row(tokens, (), 5), 6),
        (completion_row(tokens, ()), 0),
        (completion_row(tokens, (), 6), 0),
        (completion_row(tokens, (), 4), 5),
    ):
        ended = environments.step(completion_row(tokens, [0, 256])[None]).timestep
        assert (ended.step_type, ended.discount) == (StepType.LAST, 0)
        step = environments.step(answer[None]).timestep
        assert step.observation[0, 0] == asked and step.step_type == StepType.FIRST


def test_an_answer_that_ends_the_episode_may_ask_the_next_question() -> None:
    group = EnvGroup(0, build(Recipe("counting", {}, (), Counting), "auto", 1), [0], ["asked"])
    group.reset()
    answer = completion_row(Counting().spec, [0, 256], next_seed=5)[None]
    kinds, turns, metrics = [], [], []
    for _ in range(4):
        step = group.advance(answer)
        kinds.append(int(step.step_type[0]))
        turns.append(step.observation[0, :3].tolist())
        metrics.append(group.metrics.tolist())
        assert step.discount == 1
    # The episode of two turns goes on, ends with the next one's question, and so does that one.
    assert kinds == [StepType.MID, NEXT] * 2
    assert turns[1] == turns[3] == [6, 1, 5] and turns[2] == [0, 1, 6]
    # The metrics are of the episode that has ended.
    assert metrics == [[], [[2.0]]] * 2
    # An answer that asks nothing ends the episode as ever.
    answer[0, 0] = 0
    assert [int(group.advance(answer).step_type[0]) for _ in range(3)] == [1, 2, 0]


def test_an_environment_that_cannot_ask_the_next_question_is_built_again() -> None:
    class Absurd(Fragile):
        def step(self, ids: np.ndarray) -> tuple[list[int] | None, float]:
            turn, _ = super().step(ids)
            return turn, float("nan" if ids[0] == 9 else 1)

    recipe = Recipe("absurd", {"turns": 1}, (), Absurd)
    group = EnvGroup(0, build(recipe, "auto", 3, failures=Failures(3)), [0, 1, 2])
    group.reset()
    sent = ([0, 256], 6), ([9, 256], 5), ([0, 256], 5)
    rows = [completion_row(Counting().spec, ids, next_seed=seed) for ids, seed in sent]
    step = group.advance(np.stack(rows))
    # FIRST with a question of its own, and no reward; only the last one is asked.
    assert step.step_type.tolist() == [StepType.FIRST, StepType.FIRST, NEXT]
    assert step.observation[:, 0].tolist() == [0, 0, 6] and step.reward.tolist() == [0, 0, 1]


def test_a_group_has_the_spec_of_its_tokens() -> None:
    group = EnvGroup(0, build(Recipe("counting", {}, (), Counting), "auto", 2), [0, 1])
    tokens = Counting().spec
    assert group.spec == EnvSpec(tokens.turn, tokens)
    group.first()


def test_a_turn_that_is_too_long_is_a_failure_of_its_environment() -> None:
    failures = Failures(1, 0)
    recipe = Recipe("counting", {"turns": 3}, (), Counting)
    environments = build(recipe, "auto", 1, failures=failures)
    environments.reset([0])
    with pytest.raises(EnvironmentFailedError, match="turn"):
        environments.step(completion_row(Counting().spec, [0, 256])[None])


class OnlyReward(Counting):
    """Its step forgets the next turn."""

    def step(self, ids: np.ndarray) -> float:  # type: ignore[override]
        return super().step(ids)[1]


class NoVocabulary(Counting):
    """It has no tokens."""

    tokens = property()  # type: ignore[assignment]


def test_what_a_token_environment_lacks_is_named() -> None:
    env = TokenGym(OnlyReward())
    env.reset(seed=3)
    with pytest.raises(TypeError) as forgotten:
        env.step(completion_row(env.tokens, [2, 256]))
    assert "(turn or None, reward)" in str(forgotten.value)
    with pytest.raises(ValueError) as missing:
        TokenGym(NoVocabulary())
    assert "tokens" in str(missing.value)


def test_sizes_out_of_range_are_refused_before_the_run() -> None:
    class Endless(Counting):
        longest_completion = 0

    with pytest.raises(BuildError, match="longest_completion"):
        build_one(Recipe("endless", {}, (), Endless))


def test_the_end_of_a_tokenizer_needs_its_file() -> None:
    with pytest.raises(ValueError, match="tokenizer: expected the file of which '<end>'"):
        text_vocabulary(end="<end>")
    assert text_vocabulary().size == 257
