"""Real actions, and several numbers of each episode, on their way through the whole system."""

import dataclasses
from collections.abc import Callable

import numpy as np
from seedrl_plugin.counting import code_of

from seedrl.config import Config
from tests.system.harness import LearnerRun
from tests.system.oracle import BOX, Oracle, counting, predict
from tests.system.test_experience import CONFIG, EVALUATION_SLOTS, LENGTHS, TRAINING_SLOTS


def test_each_environment_receives_the_real_action_that_was_stored_and_measures_its_episodes(
    learner_run: Callable[[Config], LearnerRun],
) -> None:
    environment = dataclasses.replace(counting(LENGTHS, 0), metrics=("action", "missing", "step"))
    run = learner_run(dataclasses.replace(CONFIG, environment=environment))
    for num_envs in (4, 2):
        run.add_env_server(num_envs)
    run.start()
    run.wait_for_slots(TRAINING_SLOTS + EVALUATION_SLOTS)
    run.run_for(env_steps=1500, updates=10)
    outcome = run.finish()
    oracle = Oracle(outcome, LENGTHS, 0)
    assert oracle.check()[:10] == []
    assert {stream.slot for stream in oracle.streams.values()} == set(range(TRAINING_SLOTS))
    actions = outcome.shards[0].state.pages.steps.action
    assert actions.dtype == np.float32 and actions.shape[2:] == (2,)
    # All rows of a batch are answered before it is accounted for: all lengths have been seen.
    assert set(outcome.observed["episode/step"]) == set(LENGTHS)
    assert set(outcome.observed["episode/step/evaluation"]) <= set(LENGTHS)
    assert len(set(outcome.observed["episode/action"])) > 100
    assert "episode/missing" not in outcome.observed


def test_no_two_actions_of_a_box_have_one_code() -> None:
    rows = predict(7 << 16 | 3, LENGTHS, 0, 2000)
    scaled = [
        [low + (a + 1) / 2 * (high - low) for a, (low, high) in zip(action, BOX, strict=True)]
        for action in rows.action.tolist()
    ]
    assert len({code_of(action) for action in scaled}) == len(set(map(tuple, scaled)))
