"""The Q-network: what the core sees, carries, dtypes and refusals."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedrl.errors import ConfigError
from seedrl.networks.build import from_config
from seedrl.networks.config import QNetworkConfig
from seedrl.networks.network import Network, NetworkInput
from seedrl.networks.sac import Memory
from seedrl.observations import view
from seedrl.specs import ArraySpec, BoxSpec, DiscreteSpec, EnvSpec, MultiDiscreteSpec
from tests.seedrl.random_parameters import random_parameters

T, B = 5, 2
SPEC = EnvSpec(
    {"image": ArraySpec((4, 4), "uint8"), "speed": (ArraySpec((2,), "float32"),)}, DiscreteSpec(3)
)
SPEC_OF = functools.partial(EnvSpec, SPEC.observation)
SMALL = functools.partial(QNetworkConfig, torso="mlp", torso_sizes=(6,), core_size=5, head_sizes=())


@functools.cache
def built(core: str, frame_stack: int = 3, dtype: str = "float32") -> tuple[Network, Any]:
    network = SMALL(core=core, frame_stack=frame_stack, dtype=dtype).build(SPEC)
    params = random_parameters(network.init)
    initial_carry = jax.jit(network.initial_carry, static_argnums=0)
    return network._replace(unroll=jax.jit(network.unroll), initial_carry=initial_carry), params


def random_inputs(seed: int = 0) -> NetworkInput:
    random = np.random.default_rng(seed)
    is_first = np.zeros((T, B), bool)
    is_first[3, 1] = True
    return NetworkInput(
        observation={
            "image": random.integers(0, 256, (T, B, 4, 4), dtype=np.uint8),
            "speed": (random.normal(size=(T, B, 2)).astype(np.float32),),
        },
        previous_action=random.integers(0, 3, (T, B)).astype(np.int32),
        reward=random.normal(size=(T, B)).astype(np.float32),
        is_first=is_first,
    )


def changed_rows(network: Network, params: Any, inputs: NetworkInput, other: NetworkInput) -> Any:
    carry = network.initial_carry(B)
    q_values, _ = network.unroll(params, carry, inputs)
    others, _ = network.unroll(params, carry, other)
    return np.any(np.asarray(q_values) != np.asarray(others), axis=-1)


def test_defaults_are_those_of_r2d2() -> None:
    config = QNetworkConfig()
    assert (config.torso_sizes, config.core, config.core_size) == ((512,), "lstm", 512)
    assert config.head_sizes == (512,)
    spec = EnvSpec(ArraySpec((84, 84), "uint8"), DiscreteSpec(18))
    assert view(spec, config.torso, config.frame_stack) == ("nature", 4)
    params = jax.eval_shape(config.build(spec).init, jax.random.key(0))["params"]
    # SEED RL's check of the core's input, which it never runs: 512 + A + 1.
    assert params["LSTM_0"]["input"]["kernel"].shape == (512 + 18 + 1, 4 * 512)


@pytest.mark.parametrize("core", ["lstm", "none"])
def test_unrolling_row_by_row_equals_unrolling_at_once(core: str) -> None:
    network, params = built(core)
    inputs = random_inputs()
    at_once, last_carry = network.unroll(params, network.initial_carry(B), inputs)
    carry, rows = network.initial_carry(B), []
    for t in range(T):
        row = jax.tree.map(lambda leaf, t=t: leaf[t : t + 1], inputs)
        q_values, carry = network.unroll(params, carry, row)
        rows.append(q_values)
    np.testing.assert_allclose(np.concatenate(rows), at_once, atol=1e-6)
    jax.tree.map(functools.partial(np.testing.assert_allclose, atol=1e-6), carry, last_carry)
    assert at_once.shape == (T, B, 3)


@pytest.mark.parametrize("name", ["previous_action", "reward"])
def test_the_core_sees_action_and_reward_except_on_first(name: str) -> None:
    network, params = built("lstm")
    inputs = random_inputs()
    values = getattr(inputs, name).copy()
    values[3] = (values[3] + 1) % 3
    expected = np.zeros((T, B), bool)
    expected[3:, 0] = True  # stream 1 starts an episode on row 3
    changed = changed_rows(network, params, inputs, inputs._replace(**{name: values}))
    np.testing.assert_array_equal(changed, expected)


def test_the_core_sees_each_of_several_actions_one_hot() -> None:
    """As the same numbers of a box would be seen."""
    counts, inputs = (3, 1, 4), random_inputs()
    actions = np.random.default_rng(1).integers(counts, size=(T, B, 3), dtype=np.int32)
    eyes = [np.eye(n, dtype=np.float32)[actions[..., k]] for k, n in enumerate(counts)]
    kinds = {
        MultiDiscreteSpec((3, 1), counts): actions[..., None],
        BoxSpec((8,), (0.0,) * 8, (1.0,) * 8): np.concatenate(eyes, axis=-1),
    }
    outputs = []
    for action, previous_action in kinds.items():
        network = from_config(SMALL(frame_stack=1), SPEC_OF(action=action), head=Memory)
        params = random_parameters(network.init)
        seen = inputs._replace(previous_action=previous_action)
        outputs.append(jax.jit(network.unroll)(params, network.initial_carry(B), seen)[0])
    np.testing.assert_allclose(*outputs, rtol=1e-6)


def test_bfloat16_computes_alike_with_float32_parameters_carry_and_q_values() -> None:
    network, params = built("lstm", dtype="bfloat16")
    exact, _ = built("lstm")
    inputs = random_inputs()
    q_values, carry = network.unroll(params, network.initial_carry(B), inputs)
    expected, _ = exact.unroll(params, exact.initial_carry(B), inputs)
    assert {leaf.dtype for leaf in jax.tree.leaves((params, q_values, carry.core))} == {
        jnp.dtype("float32")
    }
    np.testing.assert_allclose(q_values, expected, atol=0.05)
    assert np.any(np.asarray(q_values) != np.asarray(expected))


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"core": "rnn"}, "network.core"),
        ({"torso": "vgg"}, "network.torso"),
        ({"dtype": "float16"}, "network.dtype"),
        ({"frame_stack": 0}, "network.frame_stack"),
        ({"core_size": "64"}, "network.core_size"),
        ({"head_sizes": (0,)}, "network.head_sizes"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(arguments: dict[str, Any], field: str) -> None:
    with pytest.raises(ValueError) as caught:
        QNetworkConfig(**arguments)
    assert str(caught.value).startswith(f"{field}: ")


ATARI, GRID = ArraySpec((84, 84, 3), "uint8"), ArraySpec((7, 7, 3), "uint8")
VECTOR, COUNT = ArraySpec((5,), "float32"), ArraySpec((), "int64")


@pytest.mark.parametrize(
    ("observation", "expected"),
    [
        (ATARI, ("nature", 4)),
        (VECTOR, ("mlp", 1)),
        (COUNT, ("mlp", 1)),
        (GRID, ("mlp", 1)),  # too small for three convolutions
        ({"image": ATARI, "grid": GRID, "speed": VECTOR}, ("nature", 4)),
        ((VECTOR, COUNT), ("mlp", 1)),
    ],
)
def test_the_default_network_follows_the_observation(
    observation: Any, expected: tuple[str, int]
) -> None:
    config = QNetworkConfig(torso_sizes=(4,), core_size=4, head_sizes=(4,))
    spec = EnvSpec(observation, DiscreteSpec(2))
    assert view(spec, config.torso, config.frame_stack) == expected
    # It can be made of all of it.
    jax.eval_shape(config.build(spec).init, jax.random.key(0))


@pytest.mark.parametrize(
    ("torso", "frame_stack", "observation"),
    [
        ("nature", None, GRID),
        ("impala", 1, ArraySpec((16, 5), "float32")),  # a table of numbers
        ("minatar", None, ArraySpec((2, 9), "uint8")),
        ("nature", 1, VECTOR),
    ],
)
def test_an_observation_without_an_image_that_is_needed_is_refused(
    torso: Any, frame_stack: Any, observation: ArraySpec
) -> None:
    with pytest.raises(ConfigError) as caught:
        QNetworkConfig(torso=torso, frame_stack=frame_stack).build(
            EnvSpec(observation, DiscreteSpec(2))
        )
    assert "network.torso" in str(caught.value)


def test_without_pictures_a_frame_stack_is_of_all_arrays() -> None:
    cards = ArraySpec((), "int64", (0.0,), (2.0,), is_categorical=True)
    spec = EnvSpec((ArraySpec((2,), "float32"), cards), DiscreteSpec(3))
    network = SMALL(core="none", frame_stack=3).build(spec)
    params = random_parameters(network.init)
    # Three frames of two numbers and of three categories.
    assert params["params"]["ObservationTorso_0"]["dense"]["Dense_0"]["kernel"].shape == (15, 6)
    inputs = random_inputs()
    seen = (inputs.observation["speed"][0], np.int32([[0, 1]] * T))
    inputs = inputs._replace(observation=seen, is_first=np.zeros((T, B), bool))
    network = network._replace(unroll=jax.jit(network.unroll))
    changed = seen[0].copy()
    changed[1] += 1.0
    # A row is seen by itself and by the two after it.
    rows = changed_rows(network, params, inputs, inputs._replace(observation=(changed, seen[1])))
    np.testing.assert_array_equal(rows.any(axis=1), [False, True, True, True, False])
