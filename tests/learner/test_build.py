"""The sizes of a session, what it takes from a checkpoint, and what it refuses."""

import contextlib
import dataclasses
import functools
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import jax
import numpy as np
import pytest

from learner.acting.act_step import example_page
from learner.build import (
    StartFrom,
    _exploration,
    _learner_state,
    _replay,
    build,
    build_hub,
    plan_geometry,
    resumed_key,
    scale,
)
from learner.checkpoints.restoring import Initial, initial_of, take_over
from learner.learning import learn_step
from learner.learning.learn_step import LearnerState
from learner.learning.loop import Snapshot
from learner.learning.page_routing import ShardedReplay
from learner.multihost.agreement import PAUSE_SECONDS, Hosts
from learner.multihost.topology import Topology
from learner.report.metrics import Metrics
from learner.runtime.channel import MOST_BYTES, FilledPages, PageQueue
from seedrl import checkpoints
from seedrl.agents.ppo import PpoConfig
from seedrl.agents.r2d2 import R2D2Config
from seedrl.checkpoints import Checkpoint, best_directory, encode_spec
from seedrl.config import Config, EnvironmentConfig, LearningConfig, ReplayConfig, ServingConfig
from seedrl.config_io import to_json
from seedrl.errors import CheckpointError, ConfigError
from seedrl.fields import with_fields
from seedrl.networks.config import ActorCriticConfig, QNetworkConfig
from seedrl.replay.experience import Scale
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec
from tests.learner.checkpoints.snapshots import checkpoint_of
from tests.learner.multihost.linked import linked
from tests.seedrl.random_parameters import random_parameters

SPEC = EnvSpec(ArraySpec((3,), "float32"), DiscreteSpec(2))
CONFIG = Config(
    environment=EnvironmentConfig(id="CartPole-v1"),
    agent=R2D2Config(
        network=QNetworkConfig(
            torso="mlp",
            torso_sizes=(),
            core_size=4,
            head_sizes=(),
            frame_stack=1,
        ),
        burn_in=0,
        unroll=4,
        n_steps=1,
        stride=4,
    ),
    serving=ServingConfig(training_slots=2, evaluation_slots=0),
    replay=ReplayConfig(capacity_steps=64, min_steps=8),
    learning=LearningConfig(num_devices=1, batch_sequences=2),
)


def _build(config: Config, checkpoint: Checkpoint | None) -> tuple[ShardedReplay, str]:
    geometry, agent = plan_geometry(config), config.agent.build(SPEC)
    page = example_page(agent, SPEC, geometry.page_steps)
    experience = config.replay.build(
        agent.window,
        page=page,
        initial_priorities=agent.initial_priorities,
        scale=scale(config, geometry),
    )
    return _replay(config, geometry, experience, page, checkpoint)


def _saved(directory: Path) -> Checkpoint:
    shards, _ = _build(CONFIG, None)
    for stream in (7, 7, 8):
        shards.indices[0].plan([stream])
    state: Any = LearnerState((), (), (), np.int32(3), (), np.zeros(2, np.uint32))
    replay = jax.tree.map(np.asarray, shards.memory)
    snapshot = Snapshot(state, [index.state() for index in shards.indices], replay, 12, {})
    return checkpoint_of(directory, snapshot, {"config": to_json(CONFIG)})


def test_a_saved_replay_goes_on_without_its_streams(tmp_path: Path) -> None:
    shards, dropped = _build(CONFIG, _saved(tmp_path))
    (index,) = shards.indices
    assert not dropped
    assert index.num_sequences == 1
    assert index.state()["num_inserted"] == 3
    # A page of the name that stream 7 had begins a new one: nothing links the two.
    before = index.num_sequences
    index.plan([7])
    assert index.num_sequences == before


def test_a_saved_replay_of_another_environment_is_dropped_and_counted(tmp_path: Path) -> None:
    saved = _saved(tmp_path)
    for changes in ({"arguments": '{"length": 9}'}, {"wrappers": ("a:b",)}, {"id": "Acrobot-v1"}):
        environment = dataclasses.replace(CONFIG.environment, **changes)
        shards, dropped = _build(dataclasses.replace(CONFIG, environment=environment), saved)
        assert [index.state()["num_inserted"] for index in shards.indices] == [0]
        assert f"environment.{next(iter(changes))} " in dropped and " 1 sequences" in dropped
    # What only says how it is run, or is reported, changes no experience.
    environment = dataclasses.replace(CONFIG.environment, vectorization="sync", metrics=("a",))
    shards, dropped = _build(dataclasses.replace(CONFIG, environment=environment), saved)
    assert shards.indices[0].num_sequences == 1 and not dropped


@pytest.mark.parametrize(
    ("field", "section", "changes"),
    [
        # The pages are the same, but a sequence reaches into more of them.
        ("agent.unroll: expected 4, got 9", "agent", {"unroll": 9}),
        pytest.param(
            *("replay.capacity_steps: expected 64, got 128", "replay", {"capacity_steps": 128}),
            marks=pytest.mark.gate,
        ),
    ],
)
def test_a_saved_replay_of_another_geometry_is_refused_by_field(
    tmp_path: Path, field: str, section: str, changes: dict[str, Any]
) -> None:
    changed = dataclasses.replace(getattr(CONFIG, section), **changes)
    config = dataclasses.replace(CONFIG, **{section: changed})
    with pytest.raises(ConfigError) as caught:
        _build(config, _saved(tmp_path))
    assert field in str(caught.value)


def test_a_saved_replay_of_another_machine_names_how_many_devices_it_was_saved_from(
    tmp_path: Path,
) -> None:
    # As with the default of `learning.num_devices`: the config is the same, the devices are not.
    learning = dataclasses.replace(CONFIG.learning, num_devices=2)
    config, saved = dataclasses.replace(CONFIG, learning=learning), _saved(tmp_path)
    saved.meta["config"] = to_json(config)
    with pytest.raises(CheckpointError) as caught:
        _build(config, saved)
    assert "set learning.num_devices to 1" in str(caught.value)
    assert "restore the config" not in str(caught.value)


def _state(config: Config, start: StartFrom) -> LearnerState:
    geometry, agent = plan_geometry(config), config.agent.build(SPEC)
    programs: Any = SimpleNamespace(init=functools.partial(learn_step.initial_state, agent))
    sizes, key = scale(config, geometry), jax.random.PRNGKey(0)
    state, _ = _learner_state(config, agent, SPEC, programs, key, sizes, start)
    return jax.tree.map(np.asarray, state)


def _fresh_state(config: Config, initial: Initial | None) -> LearnerState:
    return _state(config, StartFrom(initial=initial))


def test_a_run_resumed_in_another_environment_forgets_what_the_rewards_were(tmp_path: Path) -> None:
    config = with_fields(CONFIG, {"agent.normalize_rewards": True})
    saved = jax.tree.map(lambda leaf: leaf + 1, _fresh_state(config, None))
    path = checkpoints.save(tmp_path, 9, saved._asdict(), {}, keep=2)
    found = StartFrom(Checkpoint(9, path, {"config": to_json(config)}))
    jax.tree.map(np.testing.assert_array_equal, _state(config, found), saved)
    other = _state(with_fields(config, {"environment.arguments": '{"x": 1}'}), found)
    assert other.params.returns.count == 0


def test_a_run_begins_with_the_parameters_of_another_and_nothing_else_of_it(
    tmp_path: Path,
) -> None:
    fresh = _fresh_state(CONFIG, None)
    params = jax.tree.map(lambda leaf: leaf + 1, fresh.params)
    meta = {"config": to_json(CONFIG), "env_spec": encode_spec(SPEC)}
    saved = fresh._replace(params=params, updates=np.int32(9), key=fresh.key + 1)
    checkpoints.save(tmp_path / "checkpoints", 9, saved._asdict(), meta, keep=2)
    initial = initial_of(tmp_path)
    shutil.rmtree(tmp_path)  # its run may replace it long before an env server has joined
    found = _fresh_state(CONFIG, initial)
    expected = fresh._replace(params=params, target=params)
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    network = dataclasses.replace(CONFIG.agent.network, core_size=8)
    agent = dataclasses.replace(CONFIG.agent, network=network, learning_rate=0.5)
    with pytest.raises(ConfigError) as caught:
        _fresh_state(dataclasses.replace(CONFIG, agent=agent), initial)
    # Only fields of the network are named: learning_rate, for example, may differ.
    assert "--init-from-partial" in str(caught.value)
    assert "agent.network.core_size: expected 8, got 4" in str(caught.value)
    assert "learning_rate" not in str(caught.value)


def test_a_host_does_not_wait_for_pages_while_others_wait_for_its_vote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(PageQueue, "get", lambda self, timeout: waits.append(timeout))
    geometry = plan_geometry(CONFIG)
    hub = build_hub(CONFIG, geometry, session_number=1)
    with contextlib.closing(Metrics(tmp_path)) as metrics, linked(2) as peers:
        hosts = Hosts(peers[0])
        system = build(CONFIG, geometry, hub=hub, spec=SPEC, metrics=metrics, hosts=hosts)
        system.learning.run_without_update()
    assert waits == [PAUSE_SECONDS]


@pytest.mark.parametrize(
    ("evaluation_slots", "lag_updates", "copies"), [(0, 0, 2), (2, 0, 4), (0, 3, 5)]
)
def test_what_acting_holds_counts_in_the_memory_of_an_update(
    tmp_path: Path, evaluation_slots: int, lag_updates: int, copies: int
) -> None:
    config = dataclasses.replace(
        CONFIG,
        serving=dataclasses.replace(CONFIG.serving, evaluation_slots=evaluation_slots),
        learning=dataclasses.replace(CONFIG.learning, lag_updates=lag_updates),
    )
    geometry, metrics = plan_geometry(config), Metrics(tmp_path)
    hub = build_hub(config, geometry, session_number=0)
    system = build(config, geometry, hub=hub, spec=SPEC, metrics=metrics)
    metrics.close()
    params = jax.tree.leaves(system.channel.params[0].params)
    own = sum(leaf.nbytes for leaf in params)
    state = sum(leaf.nbytes for leaf in jax.tree.leaves(system.acting[0]._actor._state))
    assert own > 100 and state > 100
    assert system.acting_bytes == state + MOST_BYTES + copies * own


@pytest.mark.parametrize("schedule", ["asynchronous", "deterministic"])
def test_pages_wait_for_room_if_another_thread_can_make_it(tmp_path: Path, schedule: str) -> None:
    config = with_fields(CONFIG, {"learning.schedule": schedule})
    geometry, metrics = plan_geometry(config), Metrics(tmp_path)
    hub = build_hub(config, geometry, session_number=0)
    system = build(config, geometry, hub=hub, spec=SPEC, metrics=metrics)
    metrics.close()
    pages: Any = np.zeros(MOST_BYTES, np.uint8)
    group = FilledPages(pages, (3,), (0,), ended=(), versions=(0,))
    assert system.channel.pages.put(group, 0.0)
    assert system.channel.pages.put(group, 0.0) == (schedule == "deterministic")


def test_only_layers_that_fit_are_taken_of_another_network(tmp_path: Path) -> None:
    """Whole layers: a bias that fits is not taken without its kernel; targets begin like them."""
    meta = {"config": to_json(CONFIG), "env_spec": encode_spec(SPEC)}
    agent = PpoConfig(network=ActorCriticConfig(core="none", head_sizes=(3,)))
    spec = dataclasses.replace(SPEC, action=DiscreteSpec(SPEC.action.num_actions + 1))
    before = random_parameters(agent.build(SPEC).init, seed=5)
    checkpoints.save(tmp_path / "checkpoints", 9, {"params": before}, meta, keep=2)
    fresh = random_parameters(agent.build(spec).init)
    found, text = take_over(initial_of(tmp_path), fresh, CONFIG, spec, is_partial=True)
    # The fresh ones first: the line may be cut.
    layers, _, rest = text.removeprefix("parameters fresh: ").partition("; taken: ")
    changed, same = layers.split(", "), rest.partition("; action")[0].split(", ")
    for (path, leaf), other, old in zip(
        jax.tree_util.tree_leaves_with_path(found),
        jax.tree.leaves(fresh),
        jax.tree.leaves(before),
        strict=True,
    ):
        layer = f"params/{jax.tree_util.keystr(path[:-1], simple=True, separator='/')}"
        assert (layer in changed) == layer.endswith("/policy") == (layer not in same)
        np.testing.assert_array_equal(leaf, other if layer in changed else old)
    assert len(changed) == 1 and len(same) > 2

    nothing = {"w": np.zeros(3, np.float32)}
    with pytest.raises(ConfigError) as caught:
        take_over(initial_of(tmp_path), nothing, CONFIG, spec, is_partial=True)
    assert "--init-from-partial" in str(caught.value)


def test_a_run_begins_with_the_best_parameters_where_they_are_meant_or_alone(
    tmp_path: Path,
) -> None:
    meta = {"config": to_json(CONFIG), "evaluation": {"mean_return": 7.5, "episodes": 20}}
    best = checkpoints.save(best_directory(tmp_path), 3, {}, meta, keep=1)
    assert initial_of(tmp_path)[0].path == best
    newest = checkpoints.save(tmp_path / "checkpoints", 9, {}, meta, keep=2)
    assert initial_of(tmp_path)[0].path == newest
    assert initial_of(tmp_path / "checkpoints" / "best")[0].path == best


def test_a_run_without_a_checkpoint_is_nothing_to_begin_with(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        initial_of(tmp_path)
    assert "--init-from" in str(caught.value)


def test_training_slots_explore_as_the_agent_says_and_evaluation_slots_all_alike() -> None:
    serving = ServingConfig(training_slots=3, evaluation_slots=2)
    config = dataclasses.replace(CONFIG, serving=serving)
    agent = CONFIG.agent.build(SPEC)._replace(
        exploration=lambda size: np.linspace(0.5, 0.1, size), evaluation_exploration=0.007
    )
    found = _exploration(config, plan_geometry(config), agent)
    # Of three rungs slot 1, at frac(φ) of the way, has the last one.
    np.testing.assert_allclose(found, [0.5, 0.1, 0.3, 0.007, 0.007], rtol=1e-6)
    for actions, expected in (("deterministic", 0.0), ("stochastic", 0.3)):
        evaluation = dataclasses.replace(config.evaluation, actions=actions)
        chosen = dataclasses.replace(config, evaluation=evaluation)
        found = _exploration(chosen, plan_geometry(chosen), agent)
        np.testing.assert_allclose(found[3:], expected, rtol=1e-6)


def test_sessions_that_resume_from_one_checkpoint_explore_with_keys_of_their_own() -> None:
    key = jax.random.PRNGKey(3)

    def keys(schedule: str) -> set[tuple[int, ...]]:
        return {tuple(resumed_key(key, schedule, 7).tolist()) for _ in range(4)}

    assert len(keys("asynchronous")) == len(keys("synchronous")) == 4
    assert len(keys("deterministic")) == 1 and keys("deterministic") != {tuple(key.tolist())}


# --- sizes ---


def _config(**learning: Any) -> Config:
    return Config(
        environment=EnvironmentConfig(id="CartPole-v1"),
        agent=R2D2Config(burn_in=10, unroll=20, n_steps=5, stride=10),
        serving=ServingConfig(training_slots=8, evaluation_slots=0),
        replay=ReplayConfig(capacity_steps=1000, min_steps=400),
        learning=LearningConfig(**({"batch_sequences": 12} | learning)),
    )


def test_hosts_that_have_not_as_many_devices_are_refused_unless_they_take_as_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    all_of = jax.local_devices()
    of_hosts = {None: all_of, 0: all_of, 1: all_of[:2]}
    monkeypatch.setattr(jax, "local_devices", lambda process_index=None: of_hosts[process_index])
    topology = Topology("a:1", 2, 0)
    with pytest.raises(ConfigError) as caught:
        plan_geometry(_config(), topology)
    assert "learning.num_devices" in str(caught.value)
    assert len(plan_geometry(_config(num_devices=4), topology).everywhere) == 4


def test_devices_that_learn_act_too_unless_others_do() -> None:
    first, second, third, fourth = jax.local_devices()
    for inference, fields, expected in (
        (0, {}, ([first, second, third, fourth], [first, second, third, fourth])),
        (0, {"num_devices": 2}, ([first, second], [first, second])),
        (2, {}, ([first, second], [third, fourth])),
        (1, {"num_devices": 2}, ([first, second], [third])),
        # One batch has all slots, so one device acts.
        (0, {"schedule": "deterministic"}, ([first, second, third, fourth], [first])),
        (0, {"schedule": "synchronous"}, ([first, second, third, fourth], [first])),
    ):
        config = _config(**fields)
        serving = dataclasses.replace(config.serving, inference_devices=inference)
        config = dataclasses.replace(config, serving=serving)
        geometry = plan_geometry(config)
        assert (list(geometry.devices), list(geometry.inference)) == expected


def test_a_device_that_knows_its_memory_is_asked() -> None:
    device = SimpleNamespace(device_kind="test device", memory_stats=lambda: {"bytes_limit": 2**30})
    config = _config(num_devices=1)
    found = scale(config, plan_geometry(config)._replace(devices=cast(Any, [device])))
    assert found == Scale(1, 12, 8, 2**30, "test device")


def test_a_forced_lag_is_ordinary() -> None:
    config = _config(num_devices=1)
    learning = dataclasses.replace(config.learning, publish_every_updates=3, lag_updates=64)
    config = dataclasses.replace(config, learning=learning)
    assert scale(config, plan_geometry(config)).publish_every_updates == 67


def test_devices_that_do_not_know_share_the_machines_memory() -> None:
    config = _config(num_devices=2)
    found = scale(config, plan_geometry(config))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert found == Scale(2, 6, 8, memory // 2, jax.local_devices()[0].device_kind)
