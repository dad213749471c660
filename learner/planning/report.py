"""A plan as a table for people and as values for programs."""

import dataclasses
from typing import Any, NamedTuple

from learner.planning import catalog
from learner.planning.costs import Costs
from learner.planning.demand import Demand
from learner.planning.plan import Sizing, in_words
from learner.planning.programs import Programs
from seedrl.errors import ConfigError

_GIB = 2**30


class Price(NamedTuple):
    """What the machines cost by the hour, where that is known.

    Attributes:
      devices, cores: of all learner hosts' devices, and of env servers' cores; None if unknown.
      notes: where the prices are from, and when they were so, a line each.
    """

    devices: float | None
    cores: float | None
    notes: tuple[str, ...]


class Plan(NamedTuple):
    """Everything that `seedrl plan` says.

    Attributes:
      config: its name.
      demand: of all hosts.
      costs: of the parts.
      sizing: hosts, and what they do.
      programs: sizes on each device.
      accelerator: of each host: its name, and how many.
      devices: of each host.
      device_bytes: memory of each that may be used; 0 if that is not known.
      price: by the hour.
      notes: what was assumed, a line each.
    """

    config: str
    demand: Demand
    costs: Costs
    sizing: Sizing
    programs: Programs
    accelerator: str
    devices: int
    device_bytes: float
    price: Price
    notes: tuple[str, ...]


def price_of(
    name: str,
    num_devices: int,
    num_cores: int,
    *,
    device_usd: float | None,
    core_usd: float | None,
) -> Price:
    """By the hour, from the bundled list unless a price is given.

    Args:
      name: of the accelerator, or `catalog.CORE`.
      num_devices: accelerators, or cores, of all learner hosts.
      num_cores: of all env servers.
      device_usd, core_usd: of one, if given.

    Raises ConfigError for the price of a device where there is none.
    """
    if name == catalog.CORE and device_usd is not None:
        raise ConfigError(
            "--device-usd-per-hour: expected with an accelerator, got a learner of cores, which "
            "--core-usd-per-hour prices"
        )
    notes: list[str] = []

    def of_one(key: str, given: float | None, flag: str) -> float | None:
        known = catalog.price(key)
        if given is not None:
            return given
        if known is None:
            notes.append(f"{key}: no price is bundled; --{flag}-usd-per-hour takes one")
            return None
        notes.append(f"{key}: ${known.usd_per_hour:g} on {known.date}: {known.source}")
        return known.usd_per_hour

    core = of_one(catalog.CORE, core_usd, "core")
    device = core if name == catalog.CORE else of_one(name, device_usd, "device")
    return Price(
        devices=None if device is None else device * num_devices,
        cores=None if core is None else core * num_cores,
        notes=tuple(notes),
    )


def rows(plan: Plan) -> list[tuple[str, str]]:
    """What and how much, in the order of the table."""
    sizing, prediction, programs = plan.sizing, plan.sizing.prediction, plan.programs
    demand = plan.demand
    share = "" if not plan.device_bytes else f" of {plan.device_bytes / _GIB:.0f} that it has"
    updates = sizing.steps_per_second / demand.steps_per_update
    megabytes = prediction.messages_per_second * demand.message_bytes / 1e6
    return [
        ("environment steps/s", f"{sizing.steps_per_second:,.0f}"),
        ("updates/s", f"{updates:,.2f}"),
        ("learner hosts", f"{sizing.hosts} with {plan.accelerator}"),
        ("cores of each, besides", f"{prediction.learner_cores:.1f}"),
        ("env servers", f"{demand.env_servers:,} of {demand.envs_per_server} environments"),
        ("env-server cores", f"{sizing.env_server_cores:,}"),
        ("into each learner host", f"{megabytes:,.1f} MB/s"),
        ("messages a batch", f"{prediction.messages_per_batch:.1f}"),
        ("a step waits for its answer", f"{1e3 * prediction.answer_seconds:.2f} ms"),
        ("memory of each device", f"{programs.device_bytes / _GIB:.2f} GiB{share}"),
        ("  replay", f"{programs.replay_bytes / _GIB:.2f} GiB"),
        ("  parameters and optimizer", f"{programs.state_bytes / _GIB:.2f} GiB"),
        ("  carries, open pages", f"{programs.acting_bytes / _GIB:.2f} GiB"),
        *((f"in use: {name}", f"{100 * load:.0f} %") for name, load in prediction.loads.items()),
        ("an hour", _dollars(plan.price)),
    ]


def _dollars(price: Price) -> str:
    parts = (("devices", price.devices), ("env-server cores", price.cores))
    known = [amount for _, amount in parts if amount is not None]
    without = [name for name, amount in parts if amount is None]
    if not known:
        return "no price is known"
    return f"${sum(known):,.2f}" + "".join(f", without {name}" for name in without)


def to_json(plan: Plan) -> dict[str, Any]:
    """All of it as plain values; what is not known is None."""
    sizing = plan.sizing
    return {
        "config": plan.config,
        "demand": dataclasses.asdict(plan.demand),
        "costs": plan.costs.to_json(),
        "hosts": sizing.hosts,
        "accelerator": plan.accelerator,
        "devices_of_a_host": plan.devices,
        "of_each_host": sizing.prediction._asdict(),
        "steps_per_second": sizing.steps_per_second,
        "updates_per_second": sizing.steps_per_second / plan.demand.steps_per_update,
        "env_servers": plan.demand.env_servers,
        "env_server_cores": sizing.env_server_cores,
        "memory_of_a_device": plan.programs._asdict(),
        "usable_bytes_of_a_device": plan.device_bytes or None,
        "binding": sizing.binding,
        "in_words": in_words(sizing),
        "usd_per_hour": plan.price._asdict(),
        "notes": list(plan.notes),
    }
