import dataclasses
import os
from types import SimpleNamespace
from typing import Any, cast

import jax
import pytest

from learner.build import plan_geometry, scale
from learner.multihost.topology import Topology
from seedrl.agents.r2d2 import R2D2Config
from seedrl.config import Config, EnvironmentConfig, LearningConfig, ReplayConfig, ServingConfig
from seedrl.errors import ConfigError
from seedrl.replay.experience import Scale


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
