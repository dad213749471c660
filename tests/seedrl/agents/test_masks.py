"""Action masks: each target, loss and gradient against float64, over the legal actions only.

Each cell of a sequence is a state of its own in the table of a network, so that an entry of the
gradient belongs to one action of one time step.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedrl.agents.agent import AgentState
from seedrl.agents.apex import ApexConfig
from seedrl.agents.check import build_agent, build_network, check_agent
from seedrl.agents.impala import ImpalaConfig
from seedrl.agents.inputs import AgentCarry
from seedrl.agents.masks import legal_actions
from seedrl.agents.ppo import Acted, PpoConfig
from seedrl.agents.r2d2 import R2D2Config
from seedrl.errors import ConfigError
from seedrl.networks.config import ActorCriticConfig, QNetworkConfig
from seedrl.networks.network import Network
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec
from seedrl.types import Sequence, StepType, StoredStep, TimeStep, Tree
from tests.gated import all_but
from tests.seedrl.agents import policy_loops
from tests.seedrl.agents.actor_critics import loss_at_start
from tests.seedrl.agents.double_q import errors_of, priorities_of
from tests.seedrl.agents.table_network import Tables
from tests.seedrl.networks.decoder_oracle import log_softmax
from tests.seedrl.random_parameters import random_parameters

FIRST, MID, LAST = StepType.FIRST, StepType.MID, StepType.LAST
KEY = jax.random.key(0)
B, ACTIONS = 3, 6


def spec_of(observation: Any, num_actions: int = ACTIONS) -> EnvSpec:
    mask = ArraySpec((num_actions,), "bool")
    return EnvSpec({"observation": observation, "action_mask": mask}, DiscreteSpec(num_actions))


class Case(NamedTuple):
    """What a loss is given; `[T, B]` with a state of its own in each cell."""

    params: Tree
    target: Tree
    sequence: Sequence
    weights: np.ndarray

    @property
    def mask(self) -> np.ndarray:
        """`[T, B, A] bool`."""
        return self.sequence.steps.timestep.observation["action_mask"]


def case_of(seed: int, length: int, extras: Callable[[np.random.Generator], Any]) -> Case:
    random, size = np.random.default_rng(seed), (length, B)
    types = random.choice([FIRST, MID, LAST], size=size, p=[0.1, 0.7, 0.2]).astype(np.uint8)
    discount = np.where(types == LAST, random.integers(0, 2, size), 1).astype(np.float32)
    mask = random.random((*size, ACTIONS)) < 0.4
    mask[np.arange(length)[:, None], np.arange(B), random.integers(0, ACTIONS, size)] = True
    # The best of all actions is forbidden everywhere: any argmax without the mask takes it.
    mask[..., 2] = False
    mask[~mask.any(axis=-1), 4] = True
    mask[(types == LAST) & (discount == 0)] = False  # terminated: none may be legal
    action = np.argmax(random.random(mask.shape) * mask, axis=-1).astype(np.int32)
    reward = np.where(types == FIRST, 0, random.normal(size=size)).astype(np.float32)
    state = np.arange(length * B, dtype=np.int32).reshape(size)
    timestep = TimeStep(types, reward, discount, {"observation": state, "action_mask": mask})
    steps = StoredStep(timestep, action, np.zeros(size, np.int32), extras(random))
    params, target = (
        {
            "table": (3 * random.normal(size=(length * B, ACTIONS))).astype(np.float32),
            "value": random.normal(size=length * B).astype(np.float32),
        }
        for _ in range(2)
    )
    params["table"][:, 2] = target["table"][:, 2] = 50
    carry = AgentCarry((), np.zeros(B, np.int32))
    weights = random.uniform(0.1, 1, B).astype(np.float32)
    return Case(params, target, Sequence(steps, carry), weights)


# Double Q-learning.


Q_CONFIGS = {
    "R2D2": lambda states: R2D2Config(
        network=Tables(states=states), burn_in=1, unroll=5, n_steps=3, gamma=0.9
    ),
    "Ape-X": lambda states: ApexConfig(
        network=Tables(states=states), earlier_steps=1, n_steps=2, gamma=0.8
    ),
}


@pytest.mark.parametrize("name", all_but(["R2D2"], Q_CONFIGS))
def test_double_q_learning_takes_the_best_legal_action_of_the_row_it_bootstraps_from(
    name: str,
) -> None:
    length = Q_CONFIGS[name](1).window.length
    config = Q_CONFIGS[name](length * B)
    agent = config.build(spec_of(ArraySpec((), "int32")))
    update: Any = agent.update
    loss = jax.jit(jax.value_and_grad(update.loss, has_aux=True))
    initial_priorities = jax.jit(agent.initial_priorities)
    for seed in range(20):
        case = case_of(seed, length, lambda random: ())
        # What acting stores: the Q-values of legal actions.
        table = case.params["table"].reshape(length, B, ACTIONS)
        legal = case.mask | ~case.mask.any(axis=-1, keepdims=True)
        steps = case.sequence.steps._replace(extras=np.where(legal, table, np.float32(-np.inf)))
        (value, output), gradient = loss(
            case.params, case.target, case.sequence._replace(steps=steps), case.weights, KEY
        )
        online, target = (
            np.float64(table["table"]).reshape(length, B, ACTIONS)
            for table in (case.params, case.target)
        )
        errors = np.nan_to_num(errors_of(config, online, target, steps, case.mask))
        expected = np.mean(case.weights * np.sum(errors**2 / 2, axis=0))
        np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-5)
        slopes = np.zeros((length, B, ACTIONS))
        for row, b in np.ndindex(errors.shape):
            t = config.window.burn_in + row
            slopes[t, b, steps.action[t, b]] = -case.weights[b] * errors[row, b] / B
        check_slopes(gradient["table"], slopes, case)
        assert all(np.isfinite(metric) for metric in output.metrics.values()), output.metrics
        # As of the loss, with the acting network as its own target.
        unseen = steps._replace(timestep=steps.timestep._replace(observation=()))
        own = priorities_of(config, errors_of(config, online, online, steps, case.mask))
        np.testing.assert_allclose(initial_priorities(unseen), own, rtol=1e-3, atol=1e-3)


def check_slopes(gradient: Any, expected: np.ndarray, case: Case) -> None:
    found = np.asarray(gradient).reshape(expected.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5)
    assert (found[~case.mask] == 0).all(), "a forbidden action has a gradient"


# Policies.

LENGTH = 7
STATES = Tables(states=LENGTH * B, is_policy=True)


def stored_log_probabilities(random: np.random.Generator) -> np.ndarray:
    return np.float32(-random.random((LENGTH, B)) - 0.5)


POLICIES = {
    "IMPALA": (
        ImpalaConfig(network=STATES, unroll=6, gamma=0.9, vtrace_lambda=0.8, entropy_cost=0.03),
        policy_loops.impala,
        stored_log_probabilities,
    ),
    "PPO": (
        PpoConfig(network=STATES, unroll=6, gamma=0.9, entropy_cost=0.03),
        policy_loops.ppo,
        lambda random: Acted(
            stored_log_probabilities(random), np.float32(random.normal(size=(LENGTH, B)))
        ),
    ),
}


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_is_corrected_and_learned_over_the_legal_actions(name: str) -> None:
    config, looped, stored = POLICIES[name]
    agent = config.build(spec_of(ArraySpec((), "int32")))
    loss = jax.jit(jax.value_and_grad(loss_at_start(agent), has_aux=True))
    preprocess_batch = jax.jit(agent.preprocess_batch)
    for seed in range(20):
        case = case_of(seed, LENGTH, stored)
        state = AgentState(case.params, (), (), jnp.int32(0))
        batch = preprocess_batch(state, case.sequence, case.weights)
        (value, output), gradient = loss(case.params, (), *batch, KEY)
        logits = np.float64(case.params["table"]).reshape(case.mask.shape)
        with np.errstate(invalid="ignore"):  # where none is legal
            log_policy = log_softmax(np.where(case.mask, logits, -np.inf))
        values = np.float64(case.params["value"]).reshape(LENGTH, B)
        expected = looped(config, log_policy, values, case.sequence, case.weights)
        np.testing.assert_allclose(value, expected.loss, rtol=1e-4, atol=1e-5)
        check_slopes(gradient["table"], expected.slopes, case)
        assert all(np.isfinite(metric) for metric in output.metrics.values()), output.metrics


# Acting, and what is refused.

AGENTS = {
    "R2D2": R2D2Config(
        network=QNetworkConfig(torso_sizes=(), core_size=4, head_sizes=(4,)), burn_in=1, unroll=3
    ),
    "Ape-X": ApexConfig(network=QNetworkConfig(core="none", torso_sizes=(4,), head_sizes=())),
    "IMPALA": ImpalaConfig(network=ActorCriticConfig(core_size=4, torso_sizes=()), unroll=3),
    "PPO": PpoConfig(
        network=ActorCriticConfig(core="none", torso_sizes=(4,), frame_stack=2),
        unroll=4,
        minibatches=2,
        normalize_observations=True,
        normalize_rewards=True,
    ),
}
VECTOR = spec_of(ArraySpec((3,), "float32"), 10)


@pytest.mark.parametrize("name", all_but(["PPO"], AGENTS))
def test_what_acts_takes_legal_actions_only_and_all_of_them(name: str) -> None:
    agent = build_agent(AGENTS[name], VECTOR)
    check_agent(agent, VECTOR)
    size = 2048
    mask = np.zeros((size, 10), bool)
    legal = np.random.default_rng(0).integers(0, 10, (size, 2))
    mask[np.arange(size)[:, None], legal] = True
    mask[0] = False  # of padding, or of a terminated episode's last row
    timestep = TimeStep(
        np.full(size, MID, np.uint8),
        np.zeros(size, np.float32),
        np.ones(size, np.float32),
        {"observation": np.zeros((size, 3), np.float32), "action_mask": mask},
    )
    params = agent.actor_params(random_parameters(agent.init))
    act = jax.jit(agent.act)
    carry, explorations = agent.initial_carry(size), np.float32(np.arange(size) % 3 / 2)
    output = act(params, carry, timestep, explorations, jax.random.key(1))
    action = np.asarray(output.action)
    assert mask[np.arange(1, size), action[1:]].all()
    for exploration in (0.0, 0.5, 1.0):
        assert set(action[explorations == exploration].tolist()) == set(range(10))
    assert not any(np.isnan(leaf).any() for leaf in jax.tree.leaves(output))
    # The network does not see it: with another mask it carries the same on.
    other = timestep._replace(observation={**timestep.observation, "action_mask": ~mask})
    again = act(params, carry, other, explorations, jax.random.key(1))
    state = [
        leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path((output.carry, again.carry))
        if "previous_action" not in jax.tree_util.keystr(path)
    ]
    half = len(state) // 2
    jax.tree.map(np.testing.assert_array_equal, state[:half], state[half:])


def test_without_a_mask_networks_are_the_ones_that_were_built() -> None:
    spec = EnvSpec(ArraySpec((3,), "float32"), DiscreteSpec(2))
    network = Network(
        lambda key: (), lambda size: (), lambda params, carry, x: (x.observation[..., :2], carry)
    )

    class Own:
        def build(self, spec: EnvSpec) -> Network:
            return network

    assert build_network(Own(), spec, jax.ShapeDtypeStruct((2,), jnp.float32)) is network
    assert legal_actions(np.zeros(3)) is None
    # Of an output that is neither Q-values nor a policy nobody can say what -inf would mean.
    with pytest.raises(ConfigError, match="mask"):
        build_network(
            Own(),
            spec_of(ArraySpec((3,), "float32"), 3),
            jax.ShapeDtypeStruct((2,), jnp.float32),
        )
