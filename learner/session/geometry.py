"""Sizes that follow from a configuration and the devices at hand, checked before a start."""

import os
from collections.abc import Sequence
from typing import NamedTuple

import jax

from learner.serving.slot_deal import SlotRange, lanes_of
from seedrl.config import Config
from seedrl.config_checks import page_steps
from seedrl.errors import ConfigError
from seedrl.replay.experience import Scale


class Geometry(NamedTuple):
    """Sizes of a run.

    Attributes:
      devices: the n devices that learn.
      inference: the devices that act: the same ones, or others.
      lanes: which of these acts for which slots.
      page_steps: K.
      batch_per_device: B/n.
    """

    devices: Sequence[jax.Device]
    inference: Sequence[jax.Device]
    lanes: Sequence[SlotRange]
    page_steps: int
    batch_per_device: int


def plan_geometry(config: Config) -> Geometry:
    """Derives the sizes. Raises ConfigError if they do not fit this machine's devices."""
    devices, inference = split_devices(config, jax.local_devices())
    num_devices = len(devices)
    batch = config.learning.batch_sequences
    if batch % num_devices:
        raise ConfigError(
            f"learning.batch_sequences: expected a multiple of the {num_devices} learning devices, "
            f"got {batch}; change it or set learning.num_devices"
        )
    if config.serving.training_slots < num_devices:
        raise ConfigError(
            f"serving.training_slots: expected at least one for each of the {num_devices} learning "
            f"devices, got {config.serving.training_slots}; raise it or set learning.num_devices"
        )
    if config.serving.training_slots < len(inference):
        raise ConfigError(
            f"serving.training_slots: expected at least one for each of the {len(inference)} "
            f"inference devices, got {config.serving.training_slots}; raise it or lower "
            "serving.inference_devices"
        )
    return Geometry(
        devices=devices,
        inference=inference,
        lanes=lanes_of(
            config.serving.training_slots, config.serving.evaluation_slots, len(inference)
        ),
        page_steps=page_steps(config),
        batch_per_device=batch // num_devices,
    )


def split_devices(
    config: Config, local: Sequence[jax.Device]
) -> tuple[Sequence[jax.Device], Sequence[jax.Device]]:
    """The devices that learn, and those that act. Raises ConfigError if there are too few."""
    own = config.serving.inference_devices
    num_devices = config.learning.num_devices or len(local) - own
    if num_devices + own > len(local) or num_devices < 1:
        beside = f" beside {own} that only act (serving.inference_devices)" if own else ""
        raise ConfigError(
            f"learning.num_devices: expected at most {len(local)}, the devices of this machine, "
            f"got {num_devices}{beside}"
        )
    learning = local[:num_devices]
    if own:
        return learning, local[num_devices : num_devices + own]
    # Otherwise a batch has all slots: it is one device's.
    return learning, learning if config.learning.regime == "asynchronous" else learning[:1]


def described(geometry: Geometry) -> str:
    """The devices, for a person."""
    devices = f"{len(geometry.devices)} x {geometry.devices[0].device_kind}"
    if geometry.inference[0] in geometry.devices:
        return devices
    return f"{devices} to learn, {len(geometry.inference)} to act"


def scale(config: Config, geometry: Geometry) -> Scale:
    """What a replay has to fit. On CPUs all shards share the machine's memory."""
    device = geometry.devices[0]
    limit = (device.memory_stats() or {}).get("bytes_limit")
    if limit is None:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        limit = memory // len(geometry.devices)
    return Scale(
        num_devices=len(geometry.devices),
        batch_per_device=geometry.batch_per_device,
        training_slots=config.serving.training_slots,
        device_bytes=limit,
        device_name=device.device_kind,
        publish_every_updates=config.learning.publish_every_updates,
    )
