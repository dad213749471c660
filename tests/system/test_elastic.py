"""Real env servers on CartPole join and leave while a run goes on, most of its slots unfilled.

Those that leave are the only ones that measure. What trains and what explores is looked at while it
runs; that no experience is mixed up is counted at the end, by the ledger and the env servers' logs.
"""

from collections.abc import Callable

import numpy as np
import pytest

from learner.acting.actor import over_slots
from seedrl.agents.window import WindowSpec
from seedrl.config import (
    Config,
    EnvironmentConfig,
    EvaluationConfig,
    LearningConfig,
    ReplayConfig,
    ServingConfig,
)
from seedrl.rl.exploration import epsilons
from tests.patience import SECONDS
from tests.system.harness import LearnerRun
from tests.system.oracle import HashingAgent

TRAINING, EVALUATION = 64, 2
CONFIG = Config(
    environment=EnvironmentConfig(id="CartPole-v1"),
    agent=HashingAgent(window=WindowSpec(burn_in=2, unroll=5, bootstrap=1, stride=5)),
    serving=ServingConfig(training_slots=TRAINING, evaluation_slots=EVALUATION),
    replay=ReplayConfig(capacity_steps=20_000, min_steps=640, ratio=0.3),
    learning=LearningConfig(batch_sequences=3, num_devices=1),
    evaluation=EvaluationConfig(interval_steps=1, episodes=2),
)


def exponents(run: LearnerRun) -> np.ndarray:
    """Of 0.4, sorted, for the training slots that are filled; the ladder's go from 1 to 8."""
    ladder = over_slots(epsilons(TRAINING, base=0.4, alpha=7.0))[run.hub.live_slots("training")]
    return np.sort(np.log(ladder) / np.log(0.4))


@pytest.mark.gate  # in parts: tests/learner/serving/test_leases.py, test_hub.py
def test_a_run_learns_explores_and_measures_with_whoever_is_there(
    learner_run: Callable[[Config], LearnerRun],
) -> None:
    run = learner_run(CONFIG)
    run.hub._idle_seconds = 0.2
    measuring = [run.add_env_server(2) for _ in range(EVALUATION)]
    run.start()
    run.wait_for_slots(4)
    large = run.add_env_server(8)
    run.wait_for_slots(12)
    evaluation = [TRAINING, TRAINING + 1]
    assert run.hub.live_slots("evaluation").tolist() == evaluation
    spread = exponents(run)
    assert len(spread) == 10 and spread[0] < 1.01 and spread[-1] > 7
    rounds = run.session.acting.rounds
    run.run_until(lambda: len(rounds) > 0 and run.session.learning.updates > 2, "first round")

    measuring[0].terminate()
    assert measuring[0].wait(SECONDS) == 0
    run.env_servers.remove(measuring[0])
    run.kill(measuring[1])
    run.run_on()
    # None evaluates any more: the one that is left is sent away, and gives one of its eight.
    run.run_until(lambda: run.hub.live_slots("evaluation").size == 1, "new evaluation slot")
    run.wait_for_slots(8)
    assert large.poll() is None
    before, updates = len(rounds), run.session.learning.updates
    run.run_until(
        lambda: len(rounds) > before + 1 and run.session.learning.updates > updates + 2,
        "round and update without those that have left",
    )
    assert len(spread := exponents(run)) == 7 and spread[0] < 2 and spread[-1] > 6.5

    run.add_env_server(20)
    run.wait_for_slots(28)
    updates = run.session.learning.updates
    run.run_until(lambda: run.session.learning.updates > updates + 2, "update with a new one")
    spread = exponents(run)
    assert len(spread) == 26 and np.diff(spread).max() < 1.0
    run.session.set_gauges()
    values = run.metrics.flush(env_steps=0, updates=0)
    explored = over_slots(run.agent.exploration(TRAINING))[run.hub.live_slots("training")]
    assert values["exploration_live_mean"] == float(np.mean(explored))
    assert max(run.finish().epochs) >= 2
