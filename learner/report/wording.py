"""Numbers of a run in words."""

import math
from collections.abc import Mapping

_SIGNIFICANT = 4
_LARGE = 1e9
# Below this share of the time neither side counts as waiting.
_LEAST_SHARE = 0.05


def duration(seconds: float) -> str:
    """`1:02:03`."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"


def score(value: float) -> str:
    """A return with four significant digits, so that 0.95 and 1 differ, and 475 and 480."""
    if not math.isfinite(value) or abs(value) >= _LARGE:
        return f"{value:.{_SIGNIFICANT}g}"
    before_point = 1 if abs(value) < 1 else int(math.log10(abs(value))) + 1
    return f"{value:,.{max(0, _SIGNIFICANT - before_point)}f}"


def untrained(updates: int, *, begins_untrained: bool) -> str:
    """A remark on a target that was reached before anything was learned."""
    if updates or not begins_untrained:
        return ""
    return " by untrained parameters. hint: set a higher target"


def environments(number: int) -> str:
    """`1 environment`, `2 environments`."""
    return f"{number} environment{'s' * (number != 1)}"


def binding(metrics: Mapping[str, float]) -> str:
    """Which side waits for the other, in words; empty if that is not measured."""
    acting = metrics.get("acting_waits_share")
    learning = metrics.get("learning_waits_share")
    if acting is None or learning is None:
        return ""
    if max(acting, learning) < _LEAST_SHARE:
        return "neither waits"
    if acting > learning:
        return f"environments wait for learning {acting:.0%} of the time: learning binds"
    return f"learning waits for environments {learning:.0%} of the time: sampling binds"
