"""The balance numbers: replay ratio and policy lag as reported are what really happened."""

import json
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

from seedrl.agents.window import WindowSpec
from seedrl.config import (
    Config,
    EnvironmentConfig,
    EvaluationConfig,
    LearningConfig,
    ReplayConfig,
    ServingConfig,
)
from seedrl.replay.rate_limiter import RatioLimiter
from seedrl.types import StepType
from tests.compilations import compilations
from tests.system.harness import LearnerRun, Outcome
from tests.system.oracle import HashingAgent

# The ratio of a run in `make test`: test_experience.py. What compiles when: test_experience.py too.
pytestmark = pytest.mark.gate

WINDOW = WindowSpec(burn_in=2, unroll=5, bootstrap=1, stride=5)
BATCH = 3
BATCH_STEPS = BATCH * WINDOW.unroll
TRAINING_SLOTS = 2
MIN_STEPS = 100
TOLERANCE = 2.0


def config(replay_ratio: float) -> Config:
    """A run of which acting (high ratio) or learning (low ratio) is held back."""
    return Config(
        environment=EnvironmentConfig(
            id="seedrl_plugin.counting:make", arguments=json.dumps({"lengths": [11, 4, 30]})
        ),
        agent=HashingAgent(window=WINDOW),
        serving=ServingConfig(training_slots=TRAINING_SLOTS, evaluation_slots=1),
        replay=ReplayConfig(
            capacity_steps=20_000,
            min_steps=MIN_STEPS,
            ratio=replay_ratio,
            tolerance_updates=TOLERANCE,
        ),
        learning=LearningConfig(
            batch_sequences=BATCH,
            publish_every_updates=3,
            num_devices=1,
        ),
        evaluation=EvaluationConfig(interval_steps=1, episodes=2),
    )


class Balance(NamedTuple):
    """A finished run with what it reported, and what was seen while it ran.

    Attributes:
      ratio: as configured.
      env_steps: training environment steps in all, as reported.
      reported_ratio: as reported.
      limiter: its counts at the end.
      owed: trained steps that were due, at many moments while learning went on.
      compiled: names of what was traced or compiled after the warm-up.
    """

    outcome: Outcome
    ratio: float
    env_steps: int
    reported_ratio: float
    limiter: RatioLimiter
    owed: list[float]
    compiled: list[str]


# The ratio, and updates before and after the break: if few are owed, each takes 50 steps.
CASES = {"learning-bound": (3.7, 40), "sampling-bound": (0.3, 15)}


@pytest.fixture(scope="module", params=CASES.values(), ids=list(CASES))
def balance(request: pytest.FixtureRequest, learner_run: Callable[[Config], LearnerRun]) -> Balance:
    ratio, num_updates = request.param
    run = learner_run(config(ratio))
    run.add_env_server(TRAINING_SLOTS + 1)
    run.start()
    owed: list[float] = []

    def has_run() -> bool:
        owed.append(run.session.system.channel.limiter.now.owed_steps)
        return run.session.learning.updates >= updates and len(owed) >= samples

    # From then on all is compiled.
    run.run_until(lambda: run.session.learning.updates > 0, "first update")
    updates, samples = num_updates, 30
    with compilations() as compiled:
        run.run_until(has_run, f"{updates} updates")
        run.wait_for_slots(TRAINING_SLOTS + 1)
        # Also after an env server went and another came.
        run.kill(run.env_servers[0])
        run.add_env_server(TRAINING_SLOTS + 1)
        run.wait_for_slots(TRAINING_SLOTS + 1)
        run.run_on()
        updates, samples = run.session.learning.updates + num_updates, 60
        run.run_until(has_run, f"{updates} updates")
        compiled_names = list(compiled)
    outcome = run.finish()
    env_steps = run.session.acting.training_steps
    run.session.set_gauges()
    reported = run.metrics.flush(env_steps=env_steps, updates=run.session.learning.updates)
    return Balance(
        outcome,
        ratio=ratio,
        env_steps=env_steps,
        reported_ratio=reported["replay_ratio"],
        limiter=run.session.system.channel.limiter.now,
        owed=owed,
        compiled=compiled_names,
    )


def test_the_measured_replay_ratio_is_the_configured_one_within_a_batch(balance: Balance) -> None:
    trained_steps = int(balance.outcome.state.updates) * BATCH_STEPS
    assert trained_steps == balance.limiter.applied_steps
    # All that was owed has been learned: what is missing is less than a batch.
    assert 0 <= balance.ratio * balance.limiter.env_steps - trained_steps < BATCH_STEPS
    # Reported over all steps, those before learning could begin included.
    all_steps = balance.limiter.env_steps + balance.limiter.early_steps
    assert balance.reported_ratio == trained_steps / all_steps


def test_environment_steps_are_training_rows_that_something_was_done_for(balance: Balance) -> None:
    shard = balance.outcome.shards[0]
    step_type = shard.state.pages.steps.timestep.step_type[: shard.num_pages]
    stored = int((step_type != StepType.FIRST).sum())
    # Nothing was evicted; of the rows of cut streams we cannot tell which were FIRST.
    assert stored <= balance.env_steps <= stored + balance.outcome.ledger["discarded"]
    # Only those count for the ratio that came when there was enough in replay to learn from.
    assert balance.env_steps - balance.limiter.env_steps > MIN_STEPS / 2


def test_acting_is_never_ahead_by_more_than_the_tolerance_and_a_batch(balance: Balance) -> None:
    most = TOLERANCE * BATCH_STEPS + balance.ratio * TRAINING_SLOTS
    assert len(balance.owed) >= 60
    assert min(balance.owed) >= 0
    assert max(balance.owed) < most


def test_policy_lag_is_exact_for_an_agent_that_knows_its_version(balance: Balance) -> None:
    observed = balance.outcome.observed
    learner = np.array(observed["learner_version"])
    # Version k learns update k + 1, and each is reported once.
    np.testing.assert_array_equal(learner, np.arange(balance.outcome.state.updates))
    lag = learner - np.array(observed["acting_version"])
    np.testing.assert_allclose(observed["policy_lag_updates"], lag, rtol=1e-5, atol=1e-4)
    assert (np.array(observed["policy_lag_updates_max"]) >= lag - 1e-4).all()
    assert lag.min() >= 0
    assert lag.max() > 1


def test_nothing_compiles_after_the_warm_up(balance: Balance) -> None:
    assert balance.compiled == []
