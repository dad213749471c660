"""The oracle: on the way from env servers to replay nothing happens to experience."""

import dataclasses
import json
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

from seedrl.agents.window import WindowSpec
from seedrl.config import (
    Config,
    EvaluationConfig,
    LearningConfig,
    ReplayConfig,
    ServingConfig,
)
from seedrl.replay.rate_limiter import RatioLimiter
from tests.compilations import compilations
from tests.system.harness import LearnerRun, Outcome
from tests.system.oracle import BOX, HashingAgent, counting
from tests.system.outcome import Oracle

# Two pages to a stride, and sequences that end within a page.
WINDOW = WindowSpec(burn_in=3, unroll=16, bootstrap=2, stride=8)
PAGE_STEPS = 4
# An odd number: every length both terminates and is truncated.
LENGTHS = (1, 2, WINDOW.unroll - 1, WINDOW.unroll, WINDOW.unroll + 1, 40, 3)
# Several at once; of one choice: test_devices.py.
COUNTS = (3, 4, 5)
TRAINING_SLOTS, EVALUATION_SLOTS = 4, 2
_RESTARTING = "tests.system.restarting_environment:make"

CONFIG = Config(
    environment=counting(LENGTHS, COUNTS),
    agent=HashingAgent(window=WINDOW),
    serving=ServingConfig(training_slots=TRAINING_SLOTS, evaluation_slots=EVALUATION_SLOTS),
    replay=ReplayConfig(capacity_steps=20_000, min_steps=200, page_steps=PAGE_STEPS, ratio=1.0),
    learning=LearningConfig(batch_sequences=4, num_devices=1),
    evaluation=EvaluationConfig(interval_steps=1, episodes=6),
    seed=3,
)


class Experience(NamedTuple):
    """A run in which an env server was killed and replaced, and what the oracle says of it."""

    outcome: Outcome
    oracle: Oracle
    broken: list[str]
    limiter: RatioLimiter
    compiled: list[str]


@pytest.fixture(scope="module")
def experience(learner_run: Callable[[Config], LearnerRun]) -> Experience:
    run = learner_run(CONFIG)
    # Uneven on purpose: batches of 1 to 4 rows, where shapes for 1, 2 and 4 are compiled.
    victim = run.add_env_server(3)
    run.add_env_server(3)
    run.start()
    run.wait_for_slots(TRAINING_SLOTS + EVALUATION_SLOTS)
    run.run_for(env_steps=500)
    run.kill(victim)
    run.run_for(env_steps=200)
    run.add_env_server(4)
    run.wait_for_slots(TRAINING_SLOTS + EVALUATION_SLOTS)
    with compilations() as compiled:
        run.run_for(env_steps=500, updates=10)
    outcome = run.finish()
    oracle = Oracle(outcome, LENGTHS, COUNTS)
    limiter = run.session.system.channel.limiter.now
    return Experience(outcome, oracle, oracle.check(), limiter, compiled)


def test_every_row_carry_and_sequence_is_what_must_have_happened(experience: Experience) -> None:
    assert experience.broken[:10] == []
    streams = experience.oracle.streams.values()
    # Nothing was evicted: every stream is there from its first row on.
    assert all(stream.pages[0] == 0 for stream in streams)
    assert {stream.slot for stream in streams} == set(range(TRAINING_SLOTS))
    assert {stream.epoch for stream in streams} == {1, 2}
    actions = experience.outcome.shards[0].state.pages.steps.action
    assert actions.dtype == np.int32 and actions.shape[2:] == (3,)
    assert len(np.unique(actions.reshape(-1, 3), axis=0)) == 60


def test_the_replay_ratio_is_the_configured_one_within_a_batch(experience: Experience) -> None:
    batch_steps = CONFIG.learning.batch_sequences * WINDOW.unroll
    trained, limiter = int(experience.outcome.state.updates) * batch_steps, experience.limiter
    assert trained == limiter.applied_steps
    assert 0 <= CONFIG.replay.ratio * limiter.env_steps - trained < batch_steps


def test_the_policy_lag_is_exact_for_an_agent_that_knows_its_version(
    experience: Experience,
) -> None:
    observed = experience.outcome.observed
    learner = np.array(observed["learner_version"])
    # Version k learns update k + 1, and each is reported once.
    np.testing.assert_array_equal(learner, np.arange(experience.outcome.state.updates))
    lag = learner - np.array(observed["acting_version"])
    np.testing.assert_allclose(observed["policy_lag_updates"], lag, rtol=1e-5, atol=1e-4)
    assert (np.array(observed["policy_lag_updates_max"]) >= lag - 1e-4).all()
    assert 0 <= lag.min() < lag.max()


def test_nothing_is_compiled_under_way(experience: Experience) -> None:
    """After an env server went and another came."""
    assert experience.compiled == []


def test_all_kinds_of_episodes_were_seen(experience: Experience) -> None:
    shard = experience.outcome.shards[0]
    timestep = shard.state.pages.steps.timestep
    is_last = timestep.step_type[: shard.num_pages] == 2
    ends = {
        (int(length), int(discount))
        for length, discount in zip(
            timestep.observation[: shard.num_pages][is_last][:, 3],
            timestep.discount[: shard.num_pages][is_last],
            strict=True,
        )
    }
    assert ends == {(length, discount) for length in LENGTHS for discount in (0, 1)}


def check_accounts(outcome: Outcome, oracle: Oracle) -> None:
    """Every row that arrived is in exactly one account, and those of replay are there."""
    ledger = outcome.ledger
    pages = sum(len(stream.pages) for stream in oracle.streams.values())
    assert ledger["stored"] == pages * PAGE_STEPS
    assert ledger["discarded"] > 0 and ledger["evaluation"] > 100
    accounts = ("stored", "partial", "discarded", "evaluation")
    assert ledger["answered"] == sum(ledger[account] for account in accounts)
    assert ledger["accepted"] == ledger["answered"] + ledger["struck"]
    # Fenced: steps that came just after a stream had ended for a larger lease.
    assert ledger["received"] == ledger["accepted"] + ledger.get("fenced", 0)


def test_every_row_is_in_exactly_one_account(experience: Experience) -> None:
    check_accounts(experience.outcome, experience.oracle)
    assert experience.outcome.ledger["partial"] == 0


def test_an_interior_row_is_trained_in_unroll_over_stride_windows(experience: Experience) -> None:
    longest = 0
    for stream in experience.oracle.streams.values():
        times = np.zeros((stream.pages[-1] + 1) * PAGE_STEPS, int)
        for start in stream.starts:
            row = start * PAGE_STEPS + WINDOW.burn_in
            times[row : row + WINDOW.unroll] += 1
        # At the edges fewer windows reach a row: the first strides after the burn-in, and the end.
        edge = WINDOW.burn_in + WINDOW.unroll - WINDOW.stride
        interior = times[edge : stream.starts[-1] * PAGE_STEPS + WINDOW.burn_in + WINDOW.stride]
        assert set(interior) == {WINDOW.unroll // WINDOW.stride}
        longest = max(longest, len(interior))
    assert longest > 100


# The restart: tests/envs_server/test_loop.py; its stream's end: tests/learner/serving/test_core.py.
@pytest.mark.gate
def test_environments_that_restart_cut_their_own_streams_and_receive_the_stored_real_actions(
    learner_run: Callable[[Config], LearnerRun],
) -> None:
    arguments = {"lengths": LENGTHS, "run_seed": CONFIG.seed, "bounds": BOX}
    environment = dataclasses.replace(
        CONFIG.environment,
        id=_RESTARTING,
        arguments=json.dumps(arguments),
        metrics=("action", "missing", "step"),
        failures_per_hour=10**6,
    )
    run = learner_run(dataclasses.replace(CONFIG, environment=environment))
    for num_envs in (4, 2):
        run.add_env_server(num_envs, "--allow-env", _RESTARTING)
    run.start()
    session, slots = run.session, run.hub._serving.slots
    # Chance says when an instance raises: six streams of each slot have ended.
    run.run_until(
        lambda: (
            session.acting.training_steps >= 1500
            and session.learning.updates >= 10
            and slots.epochs[:TRAINING_SLOTS].min() > 6
        ),
        "six streams of each slot",
    )
    outcome = run.finish()
    oracle = Oracle(outcome, LENGTHS, 0)
    assert oracle.check()[:10] == []
    check_accounts(outcome, oracle)
    # Each restart is a lease more of its slot.
    assert max(stream.epoch for stream in oracle.streams.values()) > 2 and len(oracle.streams) > 10
    actions = outcome.shards[0].state.pages.steps.action
    assert actions.dtype == np.float32 and actions.shape[2:] == (2,)
    # All rows of a batch are answered before it is accounted for: all lengths have been seen.
    assert set(outcome.observed["episode/step"]) == set(LENGTHS)
    assert len(set(outcome.observed["episode/action"])) > 50
    assert "episode/missing" not in outcome.observed
