"""A peer's replay is asked to hold what ours holds: to the byte."""

import dataclasses
import math

import jax
import numpy as np
import pytest

from learner.bench import workloads
from learner.bench.workloads import Workload
from seedrl.agents.r2d2 import R2D2Config
from seedrl.config import ReplayConfig
from seedrl.networks.config import QNetworkConfig
from tests.benchmarks import replay
from tests.benchmarks.bare_learner import BareLearner
from tests.benchmarks.peers import replay_stores
from tests.benchmarks.peers.programs.sequences import noise


@pytest.fixture(scope="module")
def workload() -> Workload:
    cartpole = workloads.cartpole()
    network = QNetworkConfig(
        torso="mlp", torso_sizes=(4,), core_size=4, head_sizes=(4,), frame_stack=1
    )
    return workloads.scaled(
        dataclasses.replace(
            cartpole,
            config=dataclasses.replace(
                cartpole.config,
                agent=R2D2Config(network=network, burn_in=2, unroll=4, n_steps=1, stride=4),
                replay=ReplayConfig(capacity_steps=400, min_steps=40),
            ),
        ),
        capacity_steps=400,
        batch_sequences=3,
    )


def test_the_peer_holds_the_same_sequences(workload: Workload) -> None:
    learner = BareLearner(workload, pages_per_insert=8)
    learner.fill()
    described = replay_stores.description(workload, learner)
    assert described["capacity"] == 100
    assert described["length"] == 7 and described["stride"] == 4
    assert described["batch"] == 3
    # Of its pages ours needs as many as there are in a stride to begin a sequence.
    assert described["inserted"] * described["stride"] == 8 * learner.page_steps
    steps = noise(described["steps"], described["batch"], described["length"])
    carry = noise(described["carry"], described["batch"])
    num_bytes = sum(array.nbytes for array in (*steps.values(), *carry.values()))
    assert num_bytes == replay.sampling(learner, 3).num_bytes


def test_each_leaf_has_its_own_name_shape_and_dtype(workload: Workload) -> None:
    learner = BareLearner(workload, pages_per_insert=8)
    described = replay_stores.description(workload, learner)
    leaves = jax.tree.leaves(learner.pages)
    assert len(described["steps"]) + len(described["carry"]) == len(leaves)
    (observation,) = (leaf for name, leaf in described["steps"].items() if "observation" in name)
    assert observation == ((4,), "float32")


def test_noise_fills_all_bytes_and_keeps_dtypes() -> None:
    arrays = noise({"frame": [[84, 84], "uint8"], "reward": [[], "float32"]}, 2, 5)
    assert arrays["frame"].shape == (2, 5, 84, 84) and arrays["frame"].dtype == np.uint8
    assert arrays["reward"].shape == (2, 5) and arrays["reward"].dtype == np.float32
    assert len(np.unique(arrays["frame"])) == 256
    assert all(math.isfinite(value) for value in arrays["reward"].ravel())
