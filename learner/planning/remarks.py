"""What a plan leaves out, and what stands between it and a run of that size."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from learner.hosts.place import Place
from learner.jobs import accelerators
from learner.planning.demand import Demand
from learner.planning.plan import Sizing
from learner.planning.programs import Programs
from learner.session.geometry import split_devices
from seedrl.config import Config
from seedrl.config_checks import check
from seedrl.errors import ConfigError


def remarks(
    config: Config,
    programs: Programs,
    demand: Demand,
    sizing: Sizing,
    *,
    usable_bytes: float,
    accelerator: str,
) -> Iterator[str]:
    """A line each.

    Args:
      config: of a learner, with other slots perhaps.
      programs: sizes on each device.
      demand, sizing: of all hosts.
      usable_bytes: memory of each device that may be used; 0 if that is not known.
      accelerator: of each host, as on the command line.
    """
    yield "memory: without what an update takes while it runs, which only compiling it shows"
    if 0 < usable_bytes < programs.device_bytes:
        several = ", --hosts N" if sizing.regime == "asynchronous" else ""
        yield (
            "memory: each device would need more than it has; a lower replay.capacity_steps, or "
            f"more devices (--accelerator NAME:N{several}), would help"
        )
    if demand.in_rounds:
        yield (
            f"steps: with learning.regime {sizing.regime} all wait for the slowest environment; "
            "where steps differ, give the --step-ms of that one"
        )
    serving = dataclasses.replace(config.serving, training_slots=demand.environments, bind="")
    try:
        check(dataclasses.replace(config, serving=serving))
    except ConfigError as error:
        yield f"CONFIG would have to change: {error}"
    local: Any = range(accelerators.parse(accelerator).count or 1)  # counted, not used
    try:
        split_devices(config, local, Place(num_hosts=sizing.hosts))
    except ConfigError as error:
        yield f"CONFIG would have to change for hosts with --accelerator {accelerator}: {error}"
    if sizing.hosts > 1:
        yield from _about_hosts(sizing.hosts, accelerator)


def _about_hosts(hosts: int, accelerator: str) -> Iterator[str]:
    yield (
        f"several learner hosts: `seedrl launch --hosts {hosts}` writes their job files "
        "(docs/scaling.md); --hosts 1 is one"
    )
    try:
        accelerators.parse(accelerator, hosts)
    except ConfigError as error:
        yield f"there are no such hosts: {error}"
