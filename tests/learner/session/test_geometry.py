import os
from typing import Any

import jax
import pytest

from learner.session.geometry import check_memory, plan_geometry
from seedrl.agents.r2d2 import R2D2Config
from seedrl.config import Config, EnvironmentConfig, LearningConfig, ReplayConfig, ServingConfig
from seedrl.errors import ConfigError
from seedrl.types import Page, StoredStep, TimeStep


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


def test_sizes_follow_from_the_config_and_the_number_of_devices() -> None:
    geometry = plan_geometry(_config(num_devices=2))
    assert list(geometry.devices) == jax.local_devices()[:2]
    assert geometry.page_steps == 10  # the stride
    assert geometry.capacity_pages == 50  # 1000 steps in pages of 10, half on each device
    assert geometry.batch_per_device == 6
    # A sequence of 35 rows reaches into 4 pages: of 400 steps 8 * 3 * 10 are not yet in a complete
    # one. The other 160 are the starts of 16 sequences, half of them on each device.
    assert geometry.min_sequences == 8


def test_no_number_of_devices_takes_all() -> None:
    assert list(plan_geometry(_config()).devices) == jax.local_devices()


def test_pages_can_be_shorter_than_the_stride() -> None:
    geometry = plan_geometry(_config(num_devices=1, page_steps=5))
    assert (geometry.page_steps, geometry.capacity_pages) == (5, 200)
    assert geometry.min_sequences == 16  # 7 pages each: (400 - 8 * 6 * 5) / 10


def test_learning_needs_a_sequence_on_every_device() -> None:
    assert plan_geometry(_config(num_devices=1, min_steps=1)).min_sequences == 1


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"num_devices": 5, "batch_sequences": 10},
            "learning.num_devices: expected at most 4, the devices of this machine, got 5",
        ),
        (
            {"batch_sequences": 6},
            "learning.batch_sequences: expected a multiple of the 4 learning devices, got 6; ",
        ),
        (
            {"slots": 3},
            "serving.training_slots: expected at least one for each of the 4 learning devices, "
            "got 3; ",
        ),
    ],
)
def test_what_does_not_fit_the_devices_is_refused_by_field(
    fields: dict[str, Any], message: str
) -> None:
    assert len(jax.local_devices()) == 4
    with pytest.raises(ConfigError, match=message):
        plan_geometry(_config(**fields))


def _page(observation_bytes: int) -> Page:
    def leaf(dtype: str, *shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((10, *shape), dtype)

    timestep = TimeStep(
        leaf("uint8"), leaf("float32"), leaf("float32"), leaf("uint8", observation_bytes)
    )
    step = StoredStep(timestep, leaf("int32"), leaf("int32"), ())
    return Page(step, jax.ShapeDtypeStruct((3,), "float32"))


def test_the_bytes_of_a_replay_are_those_of_its_arrays() -> None:
    geometry = plan_geometry(_config(num_devices=2))
    # 50 pages: 10 rows of 1 + 4 + 4 + 7 + 4 + 4 bytes, a carry of 12, a link and a mass.
    assert check_memory(_page(7), geometry) == 50 * (10 * 24 + 12 + 8)


def test_a_replay_that_no_device_can_hold_is_refused_with_what_would_fit() -> None:
    geometry = plan_geometry(_config(num_devices=2))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with pytest.raises(ConfigError, match="replay.capacity_steps: the replay needs") as caught:
        check_memory(_page(memory // 500), geometry)
    fitting = int(str(caught.value).split("at most ")[1].split(" steps")[0])
    assert fitting == pytest.approx(500, rel=0.01)  # on both devices, which share the memory
    pages = fitting // geometry.page_steps // 2
    check_memory(_page(memory // 500), geometry._replace(capacity_pages=pages - 1))


class _Device:
    """A device that says how much memory it has."""

    device_kind = "test device"

    def memory_stats(self) -> dict[str, int]:
        return {"bytes_limit": 2**30}


def test_a_device_that_knows_its_memory_is_asked() -> None:
    devices: Any = [_Device()]
    geometry = plan_geometry(_config(num_devices=1))._replace(devices=devices)
    with pytest.raises(ConfigError, match="test device has 1.0 GiB"):
        check_memory(_page(2**21), geometry)
    check_memory(_page(2**19), geometry)
