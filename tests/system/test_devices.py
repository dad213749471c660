"""Acting and learning on all devices, four or more: half of them act, or each does both.

Slots are spread over devices and shards, and the devices that learn stay the same. With as many
devices as `SEEDRL_TEST_DEVICES` says, see conftest.py; `make proofs` takes eight.
"""

import dataclasses
import json
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np
import pytest

from learner.runtime.channel import VersionedParams
from seedrl.agents.window import WindowSpec
from seedrl.config import Config, EnvironmentConfig, LearningConfig, ReplayConfig, ServingConfig
from tests.compilations import compilations
from tests.system.harness import LearnerRun, Outcome
from tests.system.oracle import HashingAgent
from tests.system.outcome import Oracle

# In parts: tests/learner/learning/test_learn_step.py, test_device_mapping.py, acting/test_actor.py.
pytestmark = pytest.mark.gate

WINDOW = WindowSpec(burn_in=2, unroll=6, bootstrap=1, stride=3)
PAGE_STEPS = 3
LENGTHS = (4, 1, 17)
NUM_ACTIONS = 4
DEVICES = jax.local_devices()
# How many learn, and how many act beside them.
SPLITS = [(len(DEVICES), 0), (len(DEVICES) // 2, len(DEVICES) // 2)]
# One for each device, or two if half of them act: each more is more programs for every device.
# Half of them come later: until then half of the shards are empty.
TRAINING_SLOTS = len(DEVICES)
SHARD_PAGES = 60

CONFIG = Config(
    environment=EnvironmentConfig(
        id="seedrl_plugin.counting:make",
        arguments=json.dumps({"lengths": LENGTHS, "num_actions": NUM_ACTIONS}),
    ),
    agent=HashingAgent(window=WINDOW),
    replay=ReplayConfig(
        capacity_steps=1, min_steps=25 * len(DEVICES), page_steps=PAGE_STEPS, ratio=1.0
    ),
)


def split(num_devices: int, inference_devices: int) -> Config:
    """The configuration for so many devices that learn, and that act beside them."""
    return dataclasses.replace(
        CONFIG,
        serving=ServingConfig(
            training_slots=TRAINING_SLOTS,
            evaluation_slots=0,
            inference_devices=inference_devices,
        ),
        replay=dataclasses.replace(
            CONFIG.replay, capacity_steps=num_devices * SHARD_PAGES * PAGE_STEPS
        ),
        learning=LearningConfig(batch_sequences=2 * num_devices, num_devices=num_devices),
    )


class Devices(NamedTuple):
    """A run, what the oracle says of it, and the learner's parameters on each device.

    Attributes:
      learning, acting: which ones.
      beginning: sequences of each shard after the first updates.
      compiled: what was compiled once the run was under way.
    """

    learning: list[jax.Device]
    acting: list[jax.Device]
    beginning: list[int]
    outcome: Outcome
    oracle: Oracle
    broken: list[str]
    params: list[dict[str, float]]
    compiled: list[str]
    frozen: Sequence[VersionedParams]


@pytest.fixture(scope="module", params=SPLITS, ids=str)
def devices(request: pytest.FixtureRequest, learner_run: Callable[[Config], LearnerRun]) -> Devices:
    run = learner_run(split(*request.param))
    run.add_env_server(TRAINING_SLOTS // 2, "--groups", "1")
    run.start()
    half = request.param[0] // 2

    def learns() -> bool:
        # One shard of those with slots that are played may be ahead of another one.
        learning = run.session.learning
        return learning.num_applied > 5 and min(learning.sequences_of_shards()[:half]) > 0

    run.run_until(learns, "updates")
    beginning = run.session.learning.sequences_of_shards()
    run.add_env_server(TRAINING_SLOTS // 2, "--groups", "1")
    # Until the ring of every shard has gone round.
    run.run_until(
        lambda: all(index.num_inserted > 75 for index in run.session.learning.indices),
        "full shards",
    )
    learning = run.session.learning
    with compilations() as compiled:
        run.run_for(env_steps=0, updates=20)
        outcome = run.finish()
    params = [
        jax.tree.map(
            lambda leaf, shard=shard: float(leaf.addressable_data(shard)), learning._state.params
        )
        for shard in range(len(run.geometry.devices))
    ]
    oracle = Oracle(outcome, LENGTHS, NUM_ACTIONS)
    return Devices(
        list(run.geometry.devices),
        list(run.geometry.inference),
        beginning,
        outcome,
        oracle,
        oracle.check(),
        params,
        [name for name in compiled if "backend_compile" in name],
        learning._channel.params,
    )


def test_devices_that_act_are_others_or_those_that_learn(devices: Devices) -> None:
    is_split = len(devices.learning) < len(DEVICES)
    assert devices.acting == (DEVICES[len(devices.learning) :] if is_split else DEVICES)


def test_devices_without_env_servers_do_not_keep_the_others_from_learning(
    devices: Devices,
) -> None:
    half = len(devices.learning) // 2
    assert devices.beginning[half:] == [0] * half


def test_nothing_is_compiled_under_way(devices: Devices) -> None:
    assert devices.compiled == []


def test_each_device_acts_with_parameters_of_its_own(devices: Devices) -> None:
    for device, frozen in zip(devices.acting, devices.frozen, strict=True):
        assert frozen.version == int(devices.outcome.state.updates)
        for leaf in jax.tree.leaves(frozen.params):
            assert leaf.devices() == {device}


def test_every_shard_holds_its_own_slots_and_whole_sequences_of_them(devices: Devices) -> None:
    assert devices.broken[:10] == []
    shards = {stream.slot: stream.shard for stream in devices.oracle.streams.values()}
    number = len(devices.learning)
    assert shards == {slot: slot % number for slot in range(TRAINING_SLOTS)}
    assert [shard.num_pages for shard in devices.outcome.shards] == [SHARD_PAGES] * number
    # The oldest pages were overwritten.
    assert min(stream.pages[0] for stream in devices.oracle.streams.values()) > 0


def test_every_device_learns_and_writes_back_in_its_own_shard(devices: Devices) -> None:
    for shard in devices.outcome.shards:
        mass = shard.state.sampling_weight[shard.starts]
        # Initial priorities are at most 7, those of the loss at least 11.
        is_learned = mass > 9**CONFIG.replay.priority_exponent
        assert 0 < is_learned.sum() < len(mass)


def test_all_devices_apply_every_update_with_the_mean_gradient(devices: Devices) -> None:
    updates = int(devices.outcome.state.updates)
    rewards = devices.outcome.observed["trained_reward"]
    assert updates == len(rewards) > 20
    assert devices.params == [devices.params[0]] * len(devices.learning)
    assert devices.params[0]["version"] == updates
    assert devices.params[0]["seen"] == pytest.approx(float(np.sum(rewards)), rel=1e-5)


def test_every_device_draws_with_a_key_of_its_own(devices: Devices) -> None:
    observed = devices.outcome.observed
    # Once all devices draw.
    drawn, squared = (np.array(observed[name])[-10:] for name in ("drawn", "drawn_squared"))
    variance = squared - np.square(drawn)
    assert variance.min() > 1e-6
    assert len(set(observed["drawn"])) == len(observed["drawn"])
