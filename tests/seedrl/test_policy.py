import functools
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedrl import checkpoints, config_io, policy
from seedrl.agents.agent import ActOutput, Agent
from seedrl.agents.r2d2 import R2D2Config
from seedrl.checkpoints import best_directory, encode_spec
from seedrl.config import Config, EnvironmentConfig
from seedrl.errors import ConfigError
from seedrl.networks.config import QNetworkConfig
from seedrl.specs import ArraySpec, BoxSpec, DiscreteSpec, EnvSpec, MultiDiscreteSpec
from seedrl.types import StepType, TimeStep
from tests.seedrl.random_parameters import random_parameters

_SPEC = EnvSpec(
    {"position": ArraySpec((2,), "float32"), "wall": ArraySpec((), "bool")}, DiscreteSpec(3)
)
_OBSERVATION = {"position": np.asarray([0.5, -1.0], np.float32), "wall": np.asarray(True)}
_CONFIG = Config(
    environment=EnvironmentConfig(id="CartPole-v1"),
    agent=R2D2Config(
        network=QNetworkConfig(
            torso="mlp", torso_sizes=(8,), core_size=4, head_sizes=(8,), frame_stack=1
        )
    ),
)


@functools.cache
def _agent() -> Agent:
    return _CONFIG.agent.build(_SPEC)


def _params(seed: int) -> Any:
    # Large and without an initializer's symmetries, so that one call's Q-values are not another's.
    generator = np.random.default_rng(seed)
    return jax.tree.map(
        lambda leaf: generator.normal(size=leaf.shape).astype(leaf.dtype),
        jax.eval_shape(_agent().init, jax.random.key(0)),
    )


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    (folder / "config.json").write_text(config_io.to_json(_CONFIG))
    for step in (1, 2):
        # A learner's checkpoint also holds a target and more, in which a policy has no interest.
        arrays = {"params": _params(step), "target": (), "updates": np.int64(step)}
        meta = {"env_spec": encode_spec(_SPEC), "config": config_io.to_json(_CONFIG)}
        checkpoints.save(folder / "checkpoints", step, arrays, meta, keep=2)
    return folder


@pytest.fixture(scope="module")
def loaded(workdir: Path) -> policy.Policy:
    return policy.load(workdir)


def test_the_best_policy_or_that_of_a_step_is_loaded(workdir: Path, tmp_path: Path) -> None:
    assert policy.load(workdir, step=1).step == 1
    shutil.copy(workdir / "config.json", tmp_path)
    arrays = {"params": _params(2), "updates": np.int32(9)}
    meta = {"env_spec": encode_spec(_SPEC)}
    checkpoints.save(best_directory(tmp_path), 9, arrays, meta, keep=1)
    best = policy.load(tmp_path, best=True)
    assert best.step == 9
    jax.tree.map(np.testing.assert_array_equal, best.params, arrays["params"])
    with pytest.raises(ConfigError):
        policy.load(tmp_path, best=True, step=5)


def test_one_directory_may_be_allowed_without_a_list(
    workdir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config_io, "_folders", [])
    policy.load(workdir, allow=str(tmp_path))
    assert config_io.import_folders() == (str(tmp_path),)


@pytest.mark.parametrize("epsilon", [-0.1, np.nan, np.inf])
def test_an_impossible_epsilon_is_refused(workdir: Path, epsilon: float) -> None:
    with pytest.raises(ConfigError, match="epsilon"):
        policy.load(workdir, epsilon=epsilon)


def _observation(index: int) -> dict[str, np.ndarray]:
    position = np.asarray([np.sin(3.0 * index), np.cos(5.0 * index)], np.float32)
    return {"position": 2.0 * position, "wall": np.asarray(index % 3 == 0)}


def test_a_loaded_policy_acts_as_the_agent_did(loaded: policy.Policy) -> None:
    agent, params = _agent(), _params(2)
    act = jax.jit(agent.act)
    assert loaded.step == 2
    actions = []
    for length in (6, 4):  # two episodes: the second starts afresh
        carry, expected_carry = loaded.initial_carry(), agent.initial_carry(1)
        for index in range(length):
            reward = 0.0 if index == 0 else float(index)
            result = loaded.act(_observation(index), carry, reward=reward)
            action, called_carry = loaded(_observation(index), carry, reward=reward)
            assert action == result.action
            expected = act(
                params,
                expected_carry,
                TimeStep(
                    step_type=np.full(1, StepType.MID if index else StepType.FIRST, np.uint8),
                    reward=np.full(1, reward, np.float32),
                    discount=np.ones(1, np.float32),
                    observation={name: leaf[None] for name, leaf in _observation(index).items()},
                ),
                jnp.zeros(1),
                jax.random.key(0),
            )
            assert result.action == int(expected.action[0])
            assert isinstance(result.action, int)
            np.testing.assert_allclose(result.extras, expected.extras[0], rtol=1e-6, atol=1e-6)
            carry, expected_carry = called_carry, expected.carry
            actions.append(action)
    assert len(set(actions)) > 1


def test_a_policy_obeys_the_mask_of_its_observation() -> None:
    mask = ArraySpec((3,), "bool")
    spec = EnvSpec(
        {"observation": ArraySpec((2,), "float32"), "action_mask": mask}, DiscreteSpec(3)
    )
    agent = _CONFIG.agent.build(spec)
    params = random_parameters(agent.init)
    played = policy.Policy(agent, params, spec, step=1, seed=0, epsilon=0.5)
    exported: Any = jax.export.deserialize(bytearray(played.export()))
    carry = played.initial_carry()
    zeros = [np.zeros(leaf.shape, leaf.dtype) for leaf in exported.in_avals[3:]]
    for legal in (0, 1, 2, 2, 1, 0):
        given = {
            "observation": np.ones(2, np.float32),
            "action_mask": np.eye(3, dtype=np.int8)[legal],
        }
        action, carry = played(given, carry)
        assert action == legal
        own = {**given, "action_mask": given["action_mask"].astype(bool)}
        action, zeros = exported.call(own, np.float32(0), zeros)
        assert action == legal
    assert "info['action_mask']" in _refused(lambda: played({"observation": 0}, carry))
    for bad in (np.zeros(3, np.int8), np.array([1, 2, 0], np.int8), np.ones(4, bool)):
        text = _refused(lambda bad=bad: played({**given, "action_mask": bad}, carry))
        assert "observation.action_mask" in text


def test_random_actions_follow_the_seed(workdir: Path) -> None:
    def played(seed: int) -> list[list[Any]]:
        loaded, episodes = policy.load(workdir, seed=seed, epsilon=1.0), []
        for _ in range(2):
            carry, actions = loaded.initial_carry(), []
            for _ in range(20):
                action, carry = loaded(_OBSERVATION, carry)
                actions.append(action)
            episodes.append(actions)
        return episodes

    first, second = played(3)
    assert first != second and set(first) == {0, 1, 2}
    assert played(3) == [first, second]


def _first_action(observation: Any, exploration: Any) -> Any:
    return jnp.zeros(len(exploration), jnp.int32)


def _playing(spec: EnvSpec, chosen: Any = _first_action, epsilon: float = 0.0) -> policy.Policy:
    """A policy without memory that takes `chosen(observation, exploration)`."""

    def act(params: Any, carry: Any, timestep: TimeStep, exploration: Any, key: Any) -> ActOutput:
        return ActOutput(chosen(timestep.observation, exploration), carry, ())

    agent = _agent()._replace(act=act, initial_carry=lambda size: ())
    return policy.Policy(agent, (), spec, step=1, seed=0, epsilon=epsilon)


def _refused(call: Any) -> str:
    with pytest.raises(ValueError) as caught:
        call()
    return str(caught.value)


@pytest.mark.parametrize(
    ("observation", "field"),
    [
        ({"position": np.zeros((1, 2), np.float32), "wall": False}, "observation.position: "),
        ({"position": np.zeros(2), "wall": 0.5}, "observation.wall: "),
        ({"position": np.zeros(2)}, "observation.wall"),
        ({**_OBSERVATION, "speed": np.zeros(2)}, "observation.wall"),
        *(
            ({"position": np.array([0.0, bad]), "wall": False}, "observation.position")
            for bad in (np.nan, np.inf, 1e300)
        ),
        # Finite, but the network overflows.
        ({"position": np.array([3e38, -3e38], np.float32), "wall": False}, "NaN"),
    ],
)
def test_an_observation_that_does_not_fit_is_refused(
    loaded: policy.Policy, observation: Any, field: str
) -> None:
    assert field in _refused(lambda: loaded(observation, loaded.initial_carry()))


# Of each dtype a number that it, or 32 bits, cannot hold.
_TOO_LARGE: dict[str, Any] = {
    "int64": 2**40,
    "uint64": np.uint64(2**33),
    "int8": 300,
    "uint8": np.uint16(256),
    "float16": np.float32(1e5),
    "float64": -1e300,
}


def test_a_number_that_the_dtype_or_32_bits_cannot_hold_is_refused() -> None:
    spec = EnvSpec({dtype: ArraySpec((), dtype) for dtype in _TOO_LARGE}, DiscreteSpec(2))

    played = _playing(spec)
    sound = {dtype: np.asarray(7, dtype) for dtype in _TOO_LARGE}
    assert played(sound, played.initial_carry())[0] == 0
    for dtype, number in _TOO_LARGE.items():
        bad = {**sound, dtype: np.asarray(number)}
        text = _refused(lambda bad=bad: played(bad, played.initial_carry()))
        assert f"observation.{dtype}" in text
        # One of a batch too.
        rows = {name: np.stack([sound[name], bad[name]]) for name in sound}
        text = _refused(lambda rows=rows: played.act_batch(rows, played.initial_carry(2)))
        assert f"observation.{dtype}" in text


def test_an_observation_outside_its_discrete_space_is_refused() -> None:
    low, high = (5.0, 0.0), (7.0, 2.0)
    pair = ArraySpec((2,), "int64", low, high, is_categorical=True)
    spec = EnvSpec({"a": (pair, ArraySpec((), "int64", (5.0,), (7.0,), True))}, DiscreteSpec(2))

    played = _playing(spec)

    def acted(first: list[int], second: int) -> Any:
        return played({"a": (np.array(first), second)}, played.initial_carry())[0]

    assert acted([5, 2], 7) == 0
    for first in ([4, 0], [8, 0], [5, 3], [5, -1]):
        assert " in observation.a.0, got" in _refused(lambda first=first: acted(first, 5))
    for second in (4, 8):
        assert " in observation.a.1, got" in _refused(lambda second=second: acted([5, 0], second))
    nested = {"a": {"b": ArraySpec((), "float32")}}
    played = _playing(EnvSpec(nested, DiscreteSpec(2)))
    assert played({"a": {"b": 1.0}}, played.initial_carry())[0] == 0
    bad = {"a": {"b": 1.0, "c": 1.0}}
    assert "observation.a.b" in _refused(lambda: played(bad, played.initial_carry()))


def test_a_reward_that_is_not_finite_and_a_carry_that_is_none_are_refused(
    loaded: policy.Policy,
) -> None:
    carry = loaded.initial_carry()
    # The bound of `environment.max_abs_reward` is that of training.
    for bad in (np.nan, np.inf, 1e300, 1.01 * _CONFIG.environment.max_abs_reward):
        assert "reward" in _refused(lambda bad=bad: loaded(_OBSERVATION, carry, reward=bad))
    assert "initial_carry" in _refused(lambda: loaded(_OBSERVATION, ()))  # type: ignore[arg-type]


def test_a_batch_acts_as_its_environments_do_one_by_one(loaded: policy.Policy) -> None:
    """Three episodes that begin at different times."""
    begins, carries = [0, 1, 3], [loaded.initial_carry() for _ in range(3)]
    carry = loaded.initial_carry(3)
    for index in range(6):
        rows = [_observation(index + 7 * env) for env in range(3)]
        rewards = np.array([index, 2.0 * index, -1.0], np.float32)
        is_first = np.array([index == begin for begin in begins])
        batch = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
        together = loaded.act_batch(batch, carry, rewards, is_first)
        carry = together.carry
        assert isinstance(together.action, np.ndarray) and together.action.shape == (3,)
        for env in range(3):
            if is_first[env]:
                carries[env] = loaded.initial_carry()
            alone = loaded.act(rows[env], carries[env], reward=float(rewards[env]))
            carries[env] = alone.carry
            if index >= begins[env]:
                assert alone.action == together.action[env]
                np.testing.assert_allclose(alone.extras, together.extras[env], rtol=1e-5, atol=1e-6)
    two = {"position": np.zeros((2, 2)), "wall": np.zeros(3, bool)}
    assert "as the carry" in _refused(lambda: loaded.act_batch(two, carry))
    assert "act_batch" in _refused(lambda: loaded(_OBSERVATION, carry))
    assert "reward" in _refused(lambda: loaded.act_batch(batch, carry, rewards[:2]))


def test_actions_of_a_box_are_rescaled_and_never_leave_it() -> None:
    """Here and in the exported file, whatever the bounds are as float32."""
    low, high = np.array([-0.1, 0.0]), np.array([0.1, 0.5])
    space = gymnasium.spaces.Box(low, high, dtype=np.float64)
    assert np.float32(high[0]) > high[0]
    spec = EnvSpec(ArraySpec((2,), "float32"), BoxSpec((2,), tuple(low), tuple(high)))

    played = _playing(spec, lambda observation, epsilon: observation + epsilon[:, None], 0.25)
    exported: Any = jax.export.deserialize(played.export())
    # The agent emits a quarter more than it observes.
    for seen, expected in (([0.75, 0.75], high), ([-9, -9], low), ([0.25, -0.25], [0.05, 0.25])):
        row = np.array(seen, np.float32)
        called, carry = exported.call(row, 0.0, [np.uint8(0), np.zeros(2, np.uint32)])
        for action in (played(row, played.initial_carry())[0], np.asarray(called)):
            np.testing.assert_allclose(action, expected, rtol=1e-6)
            assert space.contains(action)
        assert carry[0] == StepType.MID and np.asarray(carry[1]).any()


def test_several_actions_and_numbers_without_bounds_are_executed_as_they_are_emitted() -> None:
    """Here, of a batch, and in the exported file."""
    infinity, numbers = float("inf"), np.array([[-7.0, -7.0, -7.0], [3.0, 3.0, 3.0]], np.float32)
    half = BoxSpec((3,), (-infinity, 0.0, -infinity), (infinity, infinity, 1.0))
    bounded = [[-7.0, 0.0, -7.0], [3.0, 3.0, 1.0]]
    several = MultiDiscreteSpec((3, 1), (4, 4, 4))
    choices = np.array([[0, 1, 2], [3, 0, 1]], np.int32).reshape(2, 3, 1)
    for action, emitted, expected in ((half, numbers, bounded), (several, choices, choices)):
        spec = EnvSpec(ArraySpec((), "float32"), action)

        rows = jnp.asarray(emitted)
        played = _playing(spec, lambda seen, _, rows=rows: rows[seen.astype(int)])
        exported: Any = jax.export.deserialize(played.export())
        for row, wanted in enumerate(np.asarray(expected, emitted.dtype)):
            seen = np.float32(row)
            called, _ = exported.call(seen, 0.0, [np.uint8(0), np.zeros(2, np.uint32)])
            for one in (played(seen, played.initial_carry())[0], np.asarray(called)):
                assert isinstance(one, np.ndarray) and one.dtype == wanted.dtype
                np.testing.assert_array_equal(one, wanted)
        batch = played.act_batch(np.float32([0, 1]), played.initial_carry(2)).action
        np.testing.assert_array_equal(batch, expected)


def test_episodes_of_several_threads_draw_different_noise(workdir: Path) -> None:
    shared = policy.load(workdir)
    with ThreadPoolExecutor(4) as pool:
        carries = list(pool.map(lambda _: shared.initial_carry(), range(100)))
    keys = {tuple(jax.random.key_data(carry.key).tolist()) for carry in carries}
    assert len(keys) == len(carries)
