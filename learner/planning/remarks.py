"""What a plan leaves out, and what stands between it and a run of that size."""

import dataclasses
from collections.abc import Iterator

from learner.jobs import accelerators
from learner.planning.demand import Demand
from learner.planning.plan import Sizing
from learner.planning.programs import Programs
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
    serving = dataclasses.replace(config.serving, training_slots=demand.environments, bind="")
    try:
        check(dataclasses.replace(config, serving=serving))
    except ConfigError as error:
        yield f"CONFIG would have to change: {error}"
    if sizing.hosts > 1:
        yield from _about_hosts(config, sizing.hosts, accelerator)


def _about_hosts(config: Config, hosts: int, accelerator: str) -> Iterator[str]:
    yield (
        f"several learner hosts: `seedrl launch --hosts {hosts}` writes their job files "
        "(docs/scaling.md); --hosts 1 is one"
    )
    for name, number in (
        ("learning.num_devices", config.learning.num_devices),
        ("serving.inference_devices", config.serving.inference_devices),
    ):
        if number % hosts:
            yield (
                f"CONFIG would have to change: {name}: expected a multiple of {hosts}, as many for "
                f"each host, got {number}"
            )
    try:
        accelerators.parse(accelerator, hosts)
    except ConfigError as error:
        yield f"there are no such hosts: {error}"
