"""Sizes that follow from a configuration and the devices at hand, checked before a start."""

import os
from collections.abc import Sequence
from typing import NamedTuple

import jax

from seedrl.config import Config
from seedrl.config_checks import page_steps
from seedrl.errors import ConfigError
from seedrl.replay.index import replay_bytes
from seedrl.types import Page


class Geometry(NamedTuple):
    """Sizes of a run.

    Attributes:
      devices: the n devices that learn; the first one also acts.
      page_steps: K.
      capacity_pages: P, per device.
      min_sequences: sequences that each device must hold before learning starts.
      batch_per_device: B/n.
    """

    devices: Sequence[jax.Device]
    page_steps: int
    capacity_pages: int
    min_sequences: int
    batch_per_device: int


def plan_geometry(config: Config) -> Geometry:
    """Derives the sizes. Raises ConfigError if they do not fit this machine's devices."""
    local = jax.local_devices()
    num_devices = config.learning.num_devices or len(local)
    if num_devices > len(local):
        raise ConfigError(
            f"learning.num_devices: expected at most {len(local)}, the devices of this machine, "
            f"got {num_devices}"
        )
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
    steps = page_steps(config)
    window = config.agent.window
    # While `min_steps` steps fill up, each training slot has one sequence that is not yet complete.
    incomplete = config.serving.training_slots * (-(-window.length // steps) - 1) * steps
    complete_steps = config.replay.min_steps - incomplete
    return Geometry(
        devices=local[:num_devices],
        page_steps=steps,
        capacity_pages=config.replay.capacity_steps // steps // num_devices,
        min_sequences=max(1, complete_steps // window.stride // num_devices),
        batch_per_device=batch // num_devices,
    )


def check_memory(page: Page, geometry: Geometry) -> int:
    """Bytes of one device's replay. Raises ConfigError if the device cannot hold it.

    On CPUs all shards share the machine's memory.
    """
    wanted = replay_bytes(page, geometry.capacity_pages)
    device = geometry.devices[0]
    limit = (device.memory_stats() or {}).get("bytes_limit")
    if limit is None:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        limit = memory // len(geometry.devices)
    if wanted > limit:
        per_step = replay_bytes(page, 1) / geometry.page_steps
        fitting = int(limit / per_step) * len(geometry.devices)
        raise ConfigError(
            f"replay.capacity_steps: the replay needs {wanted / 2**30:.1f} GiB on each device, but "
            f"{device.device_kind} has {limit / 2**30:.1f} GiB; at most {fitting} steps would fit, "
            "with nothing else beside them"
        )
    return wanted
