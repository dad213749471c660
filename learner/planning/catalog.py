"""What accelerators have and what machines cost by the hour: facts with their source and date."""

import json
from pathlib import Path
from typing import Any, NamedTuple

_FILE = Path(__file__).with_name("catalog.json")
# Of the cores of env servers, in the prices.
CORE = "core"


class Device(NamedTuple):
    """One accelerator, or one core of a processor.

    Attributes:
      num_bytes: of its memory; 0 of a core.
      flops: operations a second at its best, an accelerator's in bfloat16; 0 if no source says.
    """

    num_bytes: float
    flops: float


class Price(NamedTuple):
    """What one device, or one core, costs.

    Attributes:
      usd_per_hour: on demand.
      date: when that was so.
      source: who says so.
    """

    usd_per_hour: float
    date: str
    source: str


def device(name: str) -> Device | None:
    """The accelerator of that name, as `learner.jobs.accelerators` has it; None if unknown."""
    facts = _facts()["devices"].get(name)
    if facts is None:
        return None
    return Device(1e9 * (facts["gigabytes"] or 0.0), 1e12 * (facts["teraflops"] or 0.0))


def usable_bytes(name: str) -> float:
    """Of the memory of such a device; 0 if that is not known."""
    found = device(name)
    # jax takes three quarters of a GPU's memory unless it is told otherwise, and all of a TPU's.
    share = 1.0 if name.startswith("tpu") else 0.75
    return 0.0 if found is None else share * found.num_bytes


def price(name: str) -> Price | None:
    """Of one accelerator of that name or of `CORE`; None if no dated one was found."""
    found = _facts()["prices"].get(name)
    return None if found is None else Price(**found)


def _facts() -> Any:
    return json.loads(_FILE.read_text())
