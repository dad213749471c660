"""Operations counted by hand."""

import dataclasses

import pytest

from learner.bench import workloads
from learner.bench.workloads import Workload
from seedrl.agents.r2d2 import R2D2Config
from seedrl.networks.config import QNetworkConfig
from tests.benchmarks.bare_learner import BareLearner
from tests.benchmarks.peers import model_flops


def test_matrices_are_passed_four_times_but_for_gradients_of_observations() -> None:
    first, second = 2 * 4 * 64, 2 * 64 * 3
    assert model_flops.of_actor_critic([[64, 4], [3, 64]]) == 3 * first + 4 * second


def test_kernels_are_applied_at_every_place_of_the_nature_network() -> None:
    weights = [[32, 4, 8, 8], [64, 32, 4, 4], [64, 64, 3, 3], [512, 7 * 7 * 64]]
    first = 2 * 32 * 4 * 8 * 8 * 20 * 20
    second = 2 * 64 * 32 * 4 * 4 * 9 * 9
    third = 2 * 64 * 64 * 3 * 3 * 7 * 7
    linear = 2 * 512 * 7 * 7 * 64
    expected = 3 * first + 4 * (second + third + linear)
    assert model_flops.of_actor_critic(weights) == expected


def test_ours_are_those_of_a_row_and_of_its_share_of_an_update() -> None:
    network = QNetworkConfig(
        torso="mlp", torso_sizes=(4,), core_size=4, head_sizes=(4,), frame_stack=1
    )
    cartpole = workloads.cartpole()
    agent = R2D2Config(network=network, burn_in=2, unroll=4, n_steps=1, stride=4)
    workload: Workload = workloads.scaled(
        dataclasses.replace(cartpole, config=dataclasses.replace(cartpole.config, agent=agent)),
        capacity_steps=400,
        batch_sequences=3,
    )
    # See the test of an update in test_flops.py for the layers of a row.
    row = 2 * (4 * 4 + 7 * 16 + 4 * 16 + 4 * 4 + 4 * 1 + 4 * 4 + 4 * 2)
    update = BareLearner(workload, pages_per_insert=1).flops_per_update
    assert model_flops.of_workload(workload) == pytest.approx(row + update / (3 * 4))
    twice = dataclasses.replace(
        workload.config, replay=dataclasses.replace(workload.config.replay, ratio=2.0)
    )
    at_ratio_2 = model_flops.of_workload(dataclasses.replace(workload, config=twice))
    assert at_ratio_2 == pytest.approx(row + 2 * update / (3 * 4))
