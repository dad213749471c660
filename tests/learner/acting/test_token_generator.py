"""Rows of a cache: the tokens of a bare loop, whatever happens in the rows next to them."""

from collections.abc import Iterable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from learner.acting import token_generator
from learner.acting.token_generator import TokenGenerator
from seedrl.agents.token_agent import ENVIRONMENT, PADDING, POLICY
from seedrl.networks import decoder
from seedrl.networks.decoder import DecoderConfig
from seedrl.rl import tokens
from seedrl.rl.distributions import Categorical
from seedrl.specs import TokensSpec
from seedrl.types import StepType, StoredStep, Tree
from tests.seedrl.networks.decoder_oracle import random_params

_NETWORK = DecoderConfig(vocabulary=11, layers=1, width=16, heads=2, kv_heads=1, ffn=24, context=40)
_SIZES = TokensSpec(vocabulary=11, longest_turn=19, longest_completion=7, end=10)
_KEY = jax.random.PRNGKey(3)
_ROWS = 3  # of every generator, whose programs are compiled once


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    # Of some turns two chunks and a rest, of others none; more readers than one program takes.
    monkeypatch.setattr(token_generator, "_CHUNK", 8)
    monkeypatch.setattr(token_generator, "_READERS", 2)
    monkeypatch.setattr(token_generator, "_TICKS", 3)


@pytest.fixture(scope="module")
def params() -> Tree:
    # A policy that is far from uniform.
    return jax.tree.map(jnp.asarray, random_params(_NETWORK))


def _size(rollout: StoredStep) -> int:
    return int(np.count_nonzero(rollout.extras.source != PADDING))


def _num_sampled(rollouts: Iterable[StoredStep]) -> int:
    return sum(np.count_nonzero(each.extras.source == POLICY) for each in rollouts)


def _generator(temperature: float = 1.0) -> TokenGenerator:
    return TokenGenerator(_NETWORK, _SIZES, np.full(_ROWS, temperature), _KEY, jax.devices()[0])


def _tick(generator: TokenGenerator, params: Tree, version: int) -> list[int]:
    generator.start(params, version)
    return generator.finish()


@jax.jit
def _unroll(params: Tree, ids: jax.Array) -> jax.Array:
    return decoder.unroll(_NETWORK, params, ids)


@jax.jit
def _draw(params: Tree, ids: jax.Array, rollout: int, number: int, temperature: float) -> jax.Array:
    """The token after the first `number` of `ids [1, context]`."""
    logits = decoder.unroll(_NETWORK, params, ids)[:, number - 1]
    key = jax.random.fold_in(jax.random.fold_in(_KEY, rollout), number)
    return tokens.sample(key, logits, temperature)[0][0]


class _Dialogue(NamedTuple):
    rollout: int
    turns: list[np.ndarray]


def _dialogues(number: int, seed: int = 0) -> list[_Dialogue]:
    random = np.random.default_rng(seed)
    return [
        _Dialogue(
            rollout,
            [
                # Every third question is one token long.
                random.integers(10, size=random.integers(1, 19) if longest else 1).astype(np.int32)
                for longest in [rollout % 3, *[1] * random.integers(3)]
            ],
        )
        for rollout in range(number)
    ]


def _played_together(
    generator: TokenGenerator, dialogues: list[_Dialogue], params: Tree
) -> dict[int, StoredStep]:
    """Plays all dialogues, each in the row that is free first."""
    waiting, played = list(dialogues), {}
    playing: dict[int, tuple[_Dialogue, int]] = {}
    while waiting or playing:
        for row in set(range(_ROWS)) - playing.keys():
            if waiting:
                dialogue = waiting.pop(0)
                generator.begin(row, dialogue.rollout)
                assert generator.ask(row, dialogue.turns[0])
                playing[row] = dialogue, 1
        for row in _tick(generator, params, 0):
            dialogue, asked = playing.pop(row)
            if asked < len(dialogue.turns) and generator.ask(row, dialogue.turns[asked]):
                playing[row] = dialogue, asked + 1
            else:
                played[dialogue.rollout] = generator.rollout(row)
    return played


def _bare(dialogue: _Dialogue, params: Tree, temperature: float) -> tuple[list[int], list[int]]:
    """The transcript of a loop over whole sequences, without a cache; and whose tokens they are."""
    ids: list[int] = []
    sources: list[int] = []
    for turn in dialogue.turns:
        if len(ids) + len(turn) >= _NETWORK.context:
            break
        ids += turn.tolist()
        sources += [ENVIRONMENT] * len(turn)
        for _ in range(_SIZES.longest_completion):
            padded = np.zeros((1, _NETWORK.context), np.int32)
            padded[0, : len(ids)] = ids
            ids.append(int(_draw(params, padded, dialogue.rollout, len(ids), temperature)))
            sources.append(POLICY)
            if ids[-1] == _SIZES.end or len(ids) == _NETWORK.context:
                break
    return ids, sources


@pytest.mark.parametrize("temperature", [1.0, 0.7, 0.0])
def test_a_generator_samples_the_tokens_of_a_bare_loop(params: Tree, temperature: float) -> None:
    dialogues = _dialogues(6)
    generator = _generator(temperature)
    played = _played_together(generator, dialogues, params)
    for dialogue in dialogues:
        ids, sources = _bare(dialogue, params, temperature)
        rollout = played[dialogue.rollout]
        rest = [PADDING] * (_NETWORK.context - len(ids))
        assert rollout.action[: len(ids)].tolist() == ids
        assert rollout.extras.source.tolist() == sources + rest
    assert generator.num_sampled == _num_sampled(played.values())


def test_what_is_stored_is_the_distribution_that_was_sampled(params: Tree) -> None:
    # Over refills, turns, chunks and resets; at unchanged parameters.
    dialogues = _dialogues(30, seed=1)
    played = _played_together(_generator(0.8), dialogues, params)
    largest = 0.0
    for rollout in played.values():
        ids, (source, log_mu) = rollout.action[None], rollout.extras
        policy = Categorical(_unroll(params, ids)[:, :-1] / 0.8)
        log_pi = policy.log_probability(ids[:, 1:])[0]
        is_policy = source == POLICY
        assert not is_policy[0] and np.all(log_mu[~is_policy] == 0)
        found = np.asarray(log_pi)[is_policy[1:]]
        largest = max(largest, float(np.abs(found - log_mu[is_policy]).max()))
    assert largest <= 1e-5
    assert _num_sampled(played.values()) > 100


def test_a_limit_cuts_and_the_next_rollout_starts_clean(params: Tree) -> None:
    generator = _generator()
    generator.begin(0, 4)
    assert generator.ask(0, np.arange(19, dtype=np.int32) % 10)
    while not _tick(generator, params, 0):
        pass
    assert generator.ask(0, np.arange(12, dtype=np.int32) % 10)
    # 19, up to 7, 12, and what fits: no room for another turn.
    while not _tick(generator, params, 1):
        pass
    assert not generator.ask(0, np.zeros(10, np.int32))
    rollout = generator.rollout(0)
    kinds, _, discounts, _ = rollout.timestep
    last = _size(rollout) - 1
    assert kinds.tolist() == [StepType.FIRST, *[StepType.MID] * (last - 1)] + [StepType.LAST] * (
        _NETWORK.context - last
    )
    assert discounts.all()  # it was cut
    assert rollout.version[0] == 0 and set(rollout.version[last:].tolist()) == {1}
    again, fresh = generator, _generator()
    for each in (again, fresh):
        each.begin(0, 9)
        each.ask(0, np.array([1, 2], np.int32))
        while not _tick(each, params, 2):
            pass
    jax.tree.map(np.testing.assert_array_equal, again.rollout(0), fresh.rollout(0))


def test_rewards_are_on_the_token_that_earned_them(params: Tree) -> None:
    generator = _generator()
    generator.begin(0, 0)
    ends = []
    for reward in (0.5, 2.0):
        generator.ask(0, np.array([3], np.int32))
        while not _tick(generator, params, 0):
            pass
        ends.append(_size(generator.rollout(0)) - 1)
        generator.reward(0, reward)
    rewards = generator.rollout(0).timestep.reward
    assert rewards[ends].tolist() == [0.5, 2.0] and rewards.sum() == 2.5


def test_a_row_that_begins_anew_during_a_tick_takes_nothing_from_it(params: Tree) -> None:
    generator, alone = _generator(), _generator()
    for each, row in ((generator, 1), (alone, 0)):
        each.begin(row, 5)
        each.ask(row, np.array([4], np.int32))
    generator.begin(0, 7)
    generator.ask(0, np.array([1], np.int32))
    generator.start(params, 0)
    generator.begin(1, 5)
    generator.ask(1, np.array([4], np.int32))
    generator.finish()
    assert generator.num_sampled == generator.num_open(0) > 0
    while 1 not in _tick(generator, params, 0):
        pass
    while not _tick(alone, params, 0):
        pass
    assert generator.rollout(1).action.tolist() == alone.rollout(0).action.tolist()


@pytest.mark.parametrize(
    ("first_rollout", "sampled", "num_left"), [(0, [9, 18, 21], 0), (7, [9], 2)]
)
def test_rows_that_are_all_live_tick_several_times_a_call(
    params: Tree, first_rollout: int, sampled: list[int], num_left: int
) -> None:
    # All three, three times, until some have ended: at their limit, or one by itself.
    generator, found = _generator(), list[int]()
    for row in range(_ROWS):
        generator.begin(row, first_rollout + row)
        generator.ask(row, np.array([row], np.int32))
    ended: list[int] = []
    while not ended:
        ended = _tick(generator, params, 0)
        found.append(generator.num_sampled)
    assert found == sampled and generator.is_live.sum() == num_left == _ROWS - len(ended)
    # For the others a tick is enough: a question may come for a row that is free.
    _tick(generator, params, 0)
    assert generator.num_sampled == sampled[-1] + num_left
