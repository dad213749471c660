import dataclasses
import os
from typing import Any

import jax
import pytest

from learner.build import plan_geometry, scale
from learner.multihost.topology import Topology
from seedrl.agents.r2d2 import R2D2Config
from seedrl.config import Config, EnvironmentConfig, LearningConfig, ReplayConfig, ServingConfig
from seedrl.errors import ConfigError
from seedrl.replay.experience import Scale


def _config(
    *, slots: int = 8, page_steps: int = 0, min_steps: int = 400, **learning: Any
) -> Config:
    return Config(
        environment=EnvironmentConfig(id="CartPole-v1"),
        agent=R2D2Config(burn_in=10, unroll=20, n_steps=5, stride=10),
        serving=ServingConfig(training_slots=slots, evaluation_slots=0),
        replay=ReplayConfig(capacity_steps=1000, min_steps=min_steps, page_steps=page_steps),
        learning=LearningConfig(**({"batch_sequences": 12} | learning)),
    )


def _refusal(config: Config, topology: Topology | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        plan_geometry(config, *(() if topology is None else (topology,)))
    return str(caught.value)


def test_hosts_that_have_not_as_many_devices_are_refused_unless_they_take_as_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    all_of = jax.local_devices()
    of_hosts = {None: all_of, 0: all_of, 1: all_of[:2]}
    monkeypatch.setattr(jax, "local_devices", lambda process_index=None: of_hosts[process_index])
    topology = Topology("a:1", 2, 0)
    assert "learning.num_devices" in _refusal(_config(), topology)
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


@pytest.mark.parametrize(
    ("field", "inference_devices", "fields"),
    [
        ("serving.inference_devices", 4, {}),
        ("learning.num_devices", 3, {"num_devices": 2}),
        ("serving.training_slots", 3, {"num_devices": 1, "slots": 2}),
        ("learning.num_devices", 0, {"num_devices": 5, "batch_sequences": 10}),
        ("learning.batch_sequences", 0, {"batch_sequences": 6}),
        ("serving.training_slots", 0, {"slots": 3}),
    ],
)
def test_what_does_not_fit_the_four_devices_is_refused_by_field(
    field: str, inference_devices: int, fields: dict[str, Any]
) -> None:
    config = _config(**fields)
    serving = dataclasses.replace(config.serving, inference_devices=inference_devices)
    assert field in _refusal(dataclasses.replace(config, serving=serving))


class _Device:
    """A device that says how much memory it has."""

    device_kind = "test device"

    def memory_stats(self) -> dict[str, int]:
        return {"bytes_limit": 2**30}


def test_a_device_that_knows_its_memory_is_asked() -> None:
    devices: Any = [_Device()]
    config = _config(num_devices=1)
    found = scale(config, plan_geometry(config)._replace(devices=devices))
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
