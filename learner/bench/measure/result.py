"""One result of a benchmark: a figure beside its limit, and what both were measured with."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from learner.bench.measure.interleave import Spread, ratios, spread
from seedrl.config import Config


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """What a result was measured with. An empty text stands for what plays no part.

    Attributes:
      replay_ratio: trained steps per environment step; 0 for acting only.
      window: burn-in, unroll and bootstrap rows.
      stride: rows between two sequences.
      network: torso, core and widths.
      batch: of an update.
      messages: what crosses the wire, or the batch that is computed.
      environments: which, and how many.
    """

    replay_ratio: float | None = None
    window: str = ""
    stride: int | None = None
    network: str = ""
    batch: str = ""
    messages: str = ""
    environments: str = ""


@dataclass(frozen=True, kw_only=True)
class Result:
    """A figure and its limit, measured interleaved.

    Attributes:
      name: benchmark and figure.
      unit: of both.
      limit_name: what the limit is.
      ours, limits: one number a round.
      conditions: what both were measured with.
      target: the ratio to reach; None if there is none.
      is_cost: whether less is better, so that the target is an upper bound.
      details: further numbers, by name with unit.
    """

    name: str
    unit: str
    limit_name: str
    ours: tuple[float, ...]
    limits: tuple[float, ...]
    conditions: Conditions
    target: float | None = None
    is_cost: bool = False
    details: Mapping[str, float] = field(default_factory=dict)

    @property
    def ratio(self) -> Spread:
        """Of ours to the limit, round by round."""
        return spread(ratios(self.ours, self.limits))

    @property
    def is_met(self) -> bool | None:
        """Whether the median ratio reaches the target; None without one."""
        if self.target is None:
            return None
        median = self.ratio.median
        return median <= self.target if self.is_cost else median >= self.target

    def to_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {
            "name": self.name,
            "unit": self.unit,
            "limit_name": self.limit_name,
            "ours": spread(self.ours)._asdict() | {"rounds": list(self.ours)},
            "limit": spread(self.limits)._asdict() | {"rounds": list(self.limits)},
            "ratio": self.ratio._asdict(),
            "target": self.target,
            "is_cost": self.is_cost,
            "is_met": self.is_met,
            "conditions": vars(self.conditions),
            "details": dict(self.details),
        }


def conditions(config: Config, **fields: Any) -> Conditions:
    """Window, stride and network of a configuration, its replay ratio, and `fields` on top."""
    window = config.agent.window
    described = {
        "replay_ratio": getattr(config.replay, "ratio", None),
        "window": f"{window.burn_in} + {window.unroll} + {window.bootstrap}",
        "stride": window.stride,
        "network": network_name(config.agent),
    }
    return Conditions(**{**described, **fields})


def network_name(agent: Any) -> str:
    """The network of an agent's configuration in a few words."""
    network: Any = getattr(agent, "network", agent)
    if not hasattr(network, "torso"):
        return type(network).__name__
    core = "" if network.core == "none" else f", {network.core} {network.core_size}"
    stack = "" if network.frame_stack in (1, None) else f" of {network.frame_stack} frames"
    sizes = "x".join(map(str, network.torso_sizes))
    return f"{network.torso}{stack} {sizes}{core}, {network.dtype}"
