"""What comes back from a checkpoint, and what is refused."""

import dataclasses
import functools
import math
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from learner.checkpoints.restoring import (
    digests,
    other_experience,
    require_fit,
    take_over,
    with_own_rewards,
)
from learner.learning.learn_step import initial_state
from seedrl import checkpoints, stored_arrays
from seedrl.agents.ppo import PpoConfig
from seedrl.agents.r2d2 import R2D2Config
from seedrl.agents.sac import SacConfig
from seedrl.checkpoints import encode_spec
from seedrl.config import Config
from seedrl.config_io import load, to_json
from seedrl.errors import CheckpointError, ConfigError
from seedrl.fields import with_fields
from seedrl.networks import decoder
from seedrl.networks.config import QNetworkConfig
from seedrl.networks.decoder import DecoderConfig
from seedrl.replay.buffer import ReplayState
from seedrl.replay.index import PageIndex
from seedrl.specs import ArraySpec, BoxSpec, DiscreteSpec, EnvSpec, MultiDiscreteSpec
from seedrl.types import Page, StoredStep, TimeStep
from tests.learner.checkpoints.snapshots import CONFIG, checkpoint_of, snapshot_of


def _replay(seed: int) -> ReplayState:
    """Two shards of three pages of two time steps."""
    random, shape = np.random.default_rng(seed), (2, 3, 2)

    def numbers(dtype: str, *shape: int) -> np.ndarray:
        return random.integers(0, 99, shape).astype(dtype)

    observation = {"image": numbers("uint8", *shape, 4, 4), "more": (numbers("float32", *shape),)}
    reward, discount = numbers("float32", *shape), numbers("float32", *shape)
    timestep = TimeStep(numbers("uint8", *shape), reward, discount, observation)
    steps = StoredStep(timestep, numbers("int32", *shape), numbers("int32", *shape), ())
    pages = Page(steps, (numbers("float32", 2, 3, 5),))
    return ReplayState(pages, numbers("int32", 2, 3), numbers("float32", 2, 3))


def test_the_replay_of_each_shard_comes_back_with_its_own_index(tmp_path: Path) -> None:
    window = R2D2Config(burn_in=1, unroll=2, n_steps=1, stride=2).window
    indices = [PageIndex(capacity_pages=3, window=window, page_steps=2) for _ in range(2)]
    for index, streams in zip(indices, ([4, 4, 9, 4], [5]), strict=True):
        index.plan(streams[:3])
        index.plan(streams[3:])
    states = [index.state() for index in indices]
    assert states[0] != states[1]
    snapshot = snapshot_of(5)._replace(indices=states, replay=_replay(0))
    found = checkpoint_of(tmp_path, snapshot, {"config": to_json(CONFIG)})
    assert found.meta["replay_indices"] == states
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), _replay(1))
    replay = stored_arrays.read_tree(found.path, {"replay": shapes})["replay"]
    jax.tree.map(np.testing.assert_array_equal, replay, _replay(0))


@pytest.mark.parametrize(
    ("name", "field", "now", "expected"),
    [
        ("reverse_grpo", "agent.learning_rate", 0.5, ""),
        ("reverse_grpo", "agent.group", 16, "agent.group 8"),
        # With weights of two exponents, the priorities of one part would count for too much.
        ("cartpole_r2d2", "replay.priority_exponent", 0.0, "replay.priority_exponent 0.9"),
    ],
)
def test_what_was_stored_with_another_meaning_is_other_experience(
    tmp_path: Path, name: str, field: str, now: float, expected: str
) -> None:
    config = load(name)
    saved = checkpoints.Checkpoint(5, tmp_path, {"config": to_json(config)})
    assert other_experience(saved, with_fields(config, {field: now})) == expected


def _small(core_size: int) -> Config:
    network = QNetworkConfig(core_size=core_size, torso_sizes=(4,), head_sizes=(4,))
    return dataclasses.replace(CONFIG, agent=R2D2Config(network=network))


SPEC = EnvSpec(ArraySpec((4,), "float32"), DiscreteSpec(2))


def _fitting(config: Config, env_steps: int, folder: Path) -> checkpoints.Checkpoint:
    meta = {"config": to_json(config), "env_steps": env_steps, "env_spec": encode_spec(SPEC)}
    found = checkpoints.Checkpoint(5, folder / "5", meta)
    found.path.mkdir()
    key = jax.ShapeDtypeStruct((2,), np.uint32)
    init = functools.partial(initial_state, config.agent.build(SPEC))
    learned = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), jax.eval_shape(init, key))
    stored_arrays.write_tree(found.path, learned._asdict())
    return found


def test_another_network_is_refused_before_an_env_server_has_joined(tmp_path: Path) -> None:
    config = _small(8)
    found = _fitting(config, 12, tmp_path)
    init = functools.partial(initial_state, config.agent.build(SPEC))
    key = jax.ShapeDtypeStruct((2,), np.uint32)
    require_fit(found, config)
    with pytest.raises(ConfigError) as caught:
        require_fit(found, _small(16))
    text = str(caught.value)
    assert "core_size: expected 8, got 16" in text and "--init-from" in text
    wide = jax.eval_shape(functools.partial(initial_state, _small(16).agent.build(SPEC)), key)
    params = jax.eval_shape(init, key).params
    initial = found, stored_arrays.read_all(found.path, ["params"])
    assert take_over(initial, params, config, SPEC, is_partial=False)
    # Of integers the same arrays mean something else, which is scaled by their bounds.
    array = ArraySpec((4,), "uint8", (0.0,), (9.0,))
    with pytest.raises(ConfigError) as scaled:
        take_over(initial, params, config, EnvSpec(array, DiscreteSpec(2)), is_partial=False)
    assert "observation: expected uint8[4] of 0 to 9" in str(scaled.value)
    with pytest.raises(ConfigError) as other:
        take_over(initial, wide.params, _small(16), SPEC, is_partial=False)
    assert "core_size: expected 16, got 8" in str(other.value)


def test_a_checkpoint_of_parameters_only_is_not_resumed_whatever_else_differs(
    tmp_path: Path,
) -> None:
    found = _fitting(_small(8), 12, tmp_path)
    shutil.rmtree(found.path / "state")
    (found.path / "extra").mkdir()  # as older versions left it in their best checkpoints
    with pytest.raises(CheckpointError) as caught:
        require_fit(found, _small(16))
    text = str(caught.value)
    assert "only parameters" in text and "--init-from" in text and "core_size" not in text


def test_another_class_of_agent_is_refused_by_its_field(tmp_path: Path) -> None:
    """Also one of the user's own with the same network, or one that does not take the actions."""

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class OwnConfig(R2D2Config):
        pass

    config = _small(8)
    found = _fitting(config, 12, tmp_path)
    for agent in (OwnConfig(network=config.agent.network), PpoConfig(), SacConfig()):
        with pytest.raises(ConfigError) as caught:
            require_fit(found, dataclasses.replace(config, agent=agent))
        assert "agent.type" in str(caught.value)


def test_fields_that_the_same_arrays_cannot_follow_are_refused(tmp_path: Path) -> None:
    config = load("pendulum_sac")
    found = checkpoints.Checkpoint(5, tmp_path, {"config": to_json(config)})
    with pytest.raises(ConfigError, match="agent.initial_temperature: expected 1.0, got 0.5"):
        require_fit(found, with_fields(config, {"agent.initial_temperature": 0.5}))

    config = load("reverse_grpo")
    meta = {"config": to_json(config), "env_spec": encode_spec(SPEC)}
    found = checkpoints.Checkpoint(5, tmp_path, meta)
    mine = with_fields(config, {"agent.network.heads": 4, "agent.network.kv_heads": 4})
    with pytest.raises(ConfigError, match="agent.network.heads: expected 8, got 4"):
        require_fit(found, mine)
    params = {"kernel": np.ones(3, np.float32)}
    initial = found, stored_arrays.named({"params": params})
    with pytest.raises(ConfigError, match="agent.network.heads: expected 4, got 8"):
        take_over(initial, params, mine, SPEC, is_partial=False)
    _, text = take_over(initial, params, mine, SPEC, is_partial=True)
    assert "agent.network.heads: expected 4, got 8" in text


@pytest.mark.parametrize(
    ("before", "now", "is_same"),
    [
        (BoxSpec((1,), (-1.0,), (1.0,)), BoxSpec((1,), (0.0,), (9.0,)), True),
        (BoxSpec((1,), (-1.0,), (1.0,)), BoxSpec((1,), (0.0,), (math.inf,)), False),
        (DiscreteSpec(6), MultiDiscreteSpec((2,), (2, 4)), False),
        (MultiDiscreteSpec((2,), (4, 2)), MultiDiscreteSpec((2,), (2, 4)), False),
        (DiscreteSpec(6), DiscreteSpec(3), False),  # with an action mask, see below
    ],
)
@pytest.mark.parametrize("is_partial", [False, True])
def test_parameters_of_actions_of_another_meaning_are_refused_or_named(
    tmp_path: Path, is_partial: bool, before: Any, now: Any, is_same: bool
) -> None:
    """The same arrays: a network of logits does not say which of them belong together."""
    array = ArraySpec((4,), "float32")
    saved, mine = EnvSpec(array, before), EnvSpec(array, now)
    if isinstance(before, DiscreteSpec):
        mask = ArraySpec((before.num_actions,), "bool")
        saved = EnvSpec({"observation": array, "action_mask": mask}, before)
    meta = {"config": to_json(CONFIG), "env_spec": encode_spec(saved)}
    found = checkpoints.Checkpoint(5, tmp_path, meta)
    params = {"kernel": np.ones(3, np.float32)}
    initial = found, stored_arrays.named({"params": params})
    if is_same or is_partial:
        taken, text = take_over(initial, params, CONFIG, mine, is_partial=is_partial)
        np.testing.assert_array_equal(taken["kernel"], params["kernel"])
        assert ("action" in text) == (not is_same)
    else:
        with pytest.raises(ConfigError, match="action"):
            take_over(initial, params, CONFIG, mine, is_partial=False)


def test_statistics_of_other_rewards_do_not_fit(tmp_path: Path) -> None:
    """Of a task with rewards of thousands, they would make rewards of 1 almost 0 for long."""
    normalizes = {"agent.normalize_observations": True, "agent.normalize_rewards": True}
    config = with_fields(dataclasses.replace(CONFIG, agent=PpoConfig()), normalizes)
    meta = {"config": to_json(config), "env_spec": encode_spec(SPEC)}
    fresh = config.agent.build(SPEC).init(jax.random.PRNGKey(0))
    before = jax.tree.map(lambda leaf: leaf + 1, fresh)
    found = checkpoints.Checkpoint(5, tmp_path, meta)
    initial = found, stored_arrays.named({"params": jax.device_get(before)})
    for changed, is_partial, is_taken in [
        ({"learning.total_steps": 9, "environment.metrics": ("x",)}, True, True),
        ({"environment.id": "Acrobot-v1"}, True, False),
        ({"environment.id": "Acrobot-v1"}, False, False),
        ({"environment.arguments": '{"sutton_barto_reward": true}'}, True, False),
        ({"environment.wrappers": ("mine:Scaled",)}, True, False),
        ({"agent.gamma": 0.5}, True, False),
    ]:
        mine = with_fields(config, changed)
        taken, text = take_over(initial, fresh, mine, SPEC, is_partial=is_partial)
        expected = before if is_taken else before._replace(returns=fresh.returns)
        jax.tree.map(np.testing.assert_array_equal, taken, expected)
        assert ("statistics of rewards start again" in text) == (not is_taken)
    plain = PpoConfig().build(SPEC).init(jax.random.PRNGKey(0))
    assert with_own_rewards(found, plain, mine) == (plain, "")


def test_a_network_without_lora_is_whole_for_one_with_it(tmp_path: Path) -> None:
    plain = DecoderConfig(vocabulary=8, layers=1, width=8, heads=2, kv_heads=2, ffn=8, context=8)
    before = decoder.init(plain, jax.random.key(0))
    fresh = decoder.init(dataclasses.replace(plain, lora_rank=2), jax.random.key(1))
    meta = {"config": to_json(CONFIG), "env_spec": encode_spec(SPEC)}
    found = checkpoints.Checkpoint(5, tmp_path, meta)
    saved, new = (stored_arrays.named({"params": tree}) for tree in (before, fresh))
    params, text = take_over((found, saved), fresh, CONFIG, SPEC, is_partial=True)
    lora, taken = text.removeprefix("parameters fresh: ").split("; taken: ")
    names = ("query", "key", "value", "output", "gate", "up", "down")
    assert set(lora.split(", ")) == {f"params/layers/{name}/lora" for name in names}
    assert "params/layers/query" in taken.split(", ")
    for name, leaf in stored_arrays.named({"params": params}).items():
        np.testing.assert_array_equal(leaf, (new if "/lora" in name else saved)[name])
    # With LoRA of another rank, or with one that is not wanted, a layer is another one.
    for rank in (3, 0):
        other = decoder.init(dataclasses.replace(plain, lora_rank=rank), jax.random.key(1))
        _, text = take_over((found, new), other, CONFIG, SPEC, is_partial=True)
        assert "params/layers/query" not in text.split("; taken: ")[1].split(", ")


def _with_steps(total_steps: int) -> Config:
    learning = dataclasses.replace(_small(8).learning, total_steps=total_steps)
    return dataclasses.replace(_small(8), learning=learning)


def test_fewer_steps_than_were_taken_are_refused_unless_the_run_had_no_more(tmp_path: Path) -> None:
    found = _fitting(_with_steps(100), 120, tmp_path)
    require_fit(found, _with_steps(100))  # it is over, and may say so again
    require_fit(found, _with_steps(121))
    for total_steps in (99, 120):
        with pytest.raises(ConfigError) as caught:
            require_fit(found, _with_steps(total_steps))
        assert "learning.total_steps" in str(caught.value) and "120" in str(caught.value)
    # With a learning rate of 0 it would learn nothing from the steps that are added.
    for decay_steps in (0, 100, 150):
        mine = with_fields(_with_steps(150), {"agent.learning_rate_decay_steps": decay_steps})
        if decay_steps != 100:
            require_fit(found, mine)
            continue
        with pytest.raises(
            ConfigError, match=r"agent.learning_rate_decay_steps: .*\(150\).* got 100"
        ):
            require_fit(found, mine)


ARRAYS = {
    "params/core/kernel": np.arange(6, dtype=np.float32).reshape(2, 3),
    "params/core/bias": np.zeros(3, np.float32),
    "key": np.array([1, 2], np.uint32),
    "replay.sampling_weight": np.ones(4, np.float32),
}


def test_every_part_has_its_digest_and_equal_arrays_have_equal_ones() -> None:
    copies = {name: array.copy() for name, array in reversed(ARRAYS.items())}
    assert digests(copies) == digests(ARRAYS)
    assert list(digests(ARRAYS)) == ["params", "key", "replay", "all"]
    assert len(set(digests(ARRAYS).values())) == 4
    with pytest.raises(CheckpointError):  # nothing is left out
        digests({**ARRAYS, "surprise/x": np.zeros(1)})


def test_whatever_differs_changes_the_digest_of_its_part() -> None:
    kernel = ARRAYS["params/core/kernel"]
    for name, array, part in (
        ("params/core/bias", np.array([0, 0, 1e-45], np.float32), "params"),  # one bit
        ("params/core/bias", np.array([0, 0, -0.0], np.float32), "params"),
        ("params/core/kernel", kernel.reshape(3, 2), "params"),
        ("params/core/kernel", kernel.T, "params"),
        ("key", np.array([1, 2], np.int32), "key"),
        ("replay.next", np.zeros(4, np.int32), "replay"),
    ):
        before, after = digests(ARRAYS), digests({**ARRAYS, name: array})
        assert {each for each in after if before[each] != after[each]} == {part, "all"}
