"""Learning on four devices: slots are spread over shards, and the devices stay the same."""

import json
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
import pytest

from seedrl.agents.window import WindowSpec
from seedrl.config import Config, EnvironmentConfig, LearningConfig, ReplayConfig, ServingConfig
from tests.system.harness import LearnerRun, Outcome
from tests.system.oracle import HashingAgent, Oracle

WINDOW = WindowSpec(burn_in=2, unroll=6, bootstrap=1, stride=3)
PAGE_STEPS = 3
LENGTHS = (4, 1, 17)
NUM_ACTIONS = 4
NUM_DEVICES = 4
# Shards 0 and 1 are fed by two slots each, the others by one.
TRAINING_SLOTS = 6
CAPACITY_STEPS = NUM_DEVICES * 60 * PAGE_STEPS

CONFIG = Config(
    environment=EnvironmentConfig(
        id="envs_server.envs.counting:make",
        arguments=json.dumps({"lengths": LENGTHS, "num_actions": NUM_ACTIONS}),
    ),
    agent=HashingAgent(window=WINDOW),
    serving=ServingConfig(training_slots=TRAINING_SLOTS, evaluation_slots=0),
    replay=ReplayConfig(
        capacity_steps=CAPACITY_STEPS, min_steps=100, page_steps=PAGE_STEPS, ratio=1.0
    ),
    learning=LearningConfig(batch_sequences=8, num_devices=NUM_DEVICES),
)


class Devices(NamedTuple):
    """A run, what the oracle says of it, and the learner's parameters on each device."""

    outcome: Outcome
    oracle: Oracle
    broken: list[str]
    params: list[dict[str, float]]


@pytest.fixture(scope="module")
def devices(learner_run: Callable[[Config], LearnerRun]) -> Devices:
    run = learner_run(CONFIG)
    run.add_env_server(TRAINING_SLOTS)
    run.start()
    # Until the ring of every shard has gone round.
    run.run_until(
        lambda: all(index.num_inserted > 75 for index in run.session.learning._shards.indices),
        "full shards",
    )
    run.run_for(env_steps=0, updates=20)
    outcome = run.finish()
    state = run.session.learning._state
    params = [
        jax.tree.map(lambda leaf, device=device: float(leaf.addressable_data(device)), state.params)
        for device in range(NUM_DEVICES)
    ]
    oracle = Oracle(outcome, LENGTHS, NUM_ACTIONS)
    return Devices(outcome, oracle, oracle.check(), params)


def test_every_shard_holds_its_own_slots_and_whole_sequences_of_them(devices: Devices) -> None:
    assert devices.broken[:10] == []
    shards = {stream.slot: stream.shard for stream in devices.oracle.streams.values()}
    assert shards == {slot: slot % NUM_DEVICES for slot in range(TRAINING_SLOTS)}
    assert [shard.num_pages for shard in devices.outcome.shards] == [60] * NUM_DEVICES
    # The oldest pages were overwritten.
    assert min(stream.pages[0] for stream in devices.oracle.streams.values()) > 0


def test_every_device_learns_and_writes_back_in_its_own_shard(devices: Devices) -> None:
    for shard in devices.outcome.shards:
        mass = shard.state.mass[shard.starts]
        # Initial priorities are at most 7, those of the loss at least 11.
        is_learned = mass > 9**CONFIG.replay.priority_exponent
        assert 0 < is_learned.sum() < len(mass)


def test_all_devices_apply_every_update_with_the_mean_gradient(devices: Devices) -> None:
    updates = int(devices.outcome.state.updates)
    rewards = devices.outcome.observed["trained_reward"]
    assert updates == len(rewards) > 20
    assert devices.params == [devices.params[0]] * NUM_DEVICES
    assert devices.params[0]["version"] == updates
    assert devices.params[0]["seen"] == pytest.approx(float(np.sum(rewards)), rel=1e-5)


def test_every_device_draws_with_a_key_of_its_own(devices: Devices) -> None:
    observed = devices.outcome.observed
    variance = np.array(observed["drawn_squared"]) - np.square(observed["drawn"])
    assert variance.min() > 1e-6
    assert len(set(observed["drawn"])) == len(observed["drawn"])
