"""Sizes that follow from a configuration and the devices at hand, checked before a start."""

import os
from collections.abc import Sequence
from typing import NamedTuple

import jax

from learner.hosts.jax_processes import devices_of, require_as_many
from learner.hosts.place import ALONE, Place
from learner.serving.leases import SlotRange, lanes_of
from seedrl.config import Config
from seedrl.config_checks import page_steps
from seedrl.errors import ConfigError
from seedrl.replay.experience import Scale


class Geometry(NamedTuple):
    """Sizes of a run, of which this host has a part.

    Attributes:
      devices: those of this host that learn.
      inference: those of this host that act: the same ones, or others.
      lanes: which of these acts for which slots of this host.
      page_steps: K.
      batch_per_device: B/n.
      everywhere: the n devices of all hosts that learn.
      place: this host among them.
      training_slots, evaluation_slots: of this host. Of several the first evaluates; training slot
        s of the run is slot s // H of host s modulo H.
    """

    devices: Sequence[jax.Device]
    inference: Sequence[jax.Device]
    lanes: Sequence[SlotRange]
    page_steps: int
    batch_per_device: int
    everywhere: Sequence[jax.Device]
    place: Place
    training_slots: int
    evaluation_slots: int


def plan_geometry(config: Config, place: Place = ALONE) -> Geometry:
    """Derives the sizes. Raises ConfigError if they do not fit the devices of this run."""
    if not config.learning.num_devices:
        require_as_many(place)
    devices, inference = split_devices(config, jax.local_devices(), place)
    everywhere = devices if place.num_hosts == 1 else devices_of(place, len(devices))
    num_devices = len(everywhere)
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
    num_inference = len(inference) * place.num_hosts
    if config.serving.training_slots < num_inference:
        raise ConfigError(
            f"serving.training_slots: expected at least one for each of the {num_inference} "
            f"inference devices, got {config.serving.training_slots}; raise it or lower "
            "serving.inference_devices"
        )
    training = place.part(config.serving.training_slots)
    evaluation = config.serving.evaluation_slots if place.is_first else 0
    return Geometry(
        devices=devices,
        inference=inference,
        lanes=lanes_of(training, evaluation, len(inference)),
        page_steps=page_steps(config),
        batch_per_device=batch // num_devices,
        everywhere=everywhere,
        place=place,
        training_slots=training,
        evaluation_slots=evaluation,
    )


def split_devices(
    config: Config, local: Sequence[jax.Device], place: Place = ALONE
) -> tuple[Sequence[jax.Device], Sequence[jax.Device]]:
    """The devices of this host that learn, and those that act.

    Raises ConfigError if there are too few, or the hosts cannot have as many each.
    """
    own = _part("serving.inference_devices", config.serving.inference_devices, place)
    num_devices = _part("learning.num_devices", config.learning.num_devices, place)
    num_devices = num_devices or len(local) - own
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
    return learning, learning if config.learning.schedule == "asynchronous" else learning[:1]


def _part(name: str, number: int, place: Place) -> int:
    if number % place.num_hosts:
        raise ConfigError(
            f"{name}: expected a multiple of {place.num_hosts}, as many for each host "
            f"(--hosts), got {number}"
        )
    return number // place.num_hosts


def described(geometry: Geometry) -> str:
    """The devices, for a person."""
    devices = f"{len(geometry.devices)} x {geometry.devices[0].device_kind}"
    if geometry.place.num_hosts > 1:
        devices += f" of {len(geometry.everywhere)}, {geometry.place.name}"
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
        num_devices=len(geometry.everywhere),
        batch_per_device=geometry.batch_per_device,
        training_slots=config.serving.training_slots,
        device_bytes=limit,
        device_name=device.device_kind,
        publish_every_updates=config.learning.publish_every_updates,
        num_hosts=geometry.place.num_hosts,
    )
