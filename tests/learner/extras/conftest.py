"""Benchmarks in a setting so small that each takes a second or two."""

import dataclasses

import pytest

from learner.extras.bench import workloads
from learner.extras.bench.workloads import Workload
from seedrl.agents.r2d2 import R2D2Config
from seedrl.config import ReplayConfig, ServingConfig
from seedrl.networks.config import QNetworkConfig


@pytest.fixture(scope="session")
def tiny() -> Workload:
    """CartPole with a network of a few units, of which there is little to compile."""
    network = QNetworkConfig(
        torso="mlp", torso_sizes=(4,), core="none", head_sizes=(), frame_stack=1
    )
    cartpole = workloads.cartpole()
    config = dataclasses.replace(
        cartpole.config,
        agent=R2D2Config(network=network, burn_in=2, unroll=4, n_steps=1, stride=2),
        serving=ServingConfig(training_slots=4, evaluation_slots=0),
        replay=ReplayConfig(capacity_steps=400, min_steps=40, ratio=1.0),
        learning=dataclasses.replace(cartpole.config.learning, batch_sequences=3, num_devices=1),
    )
    return dataclasses.replace(cartpole, config=config)
