"""What binds a run, the change that is worth its price, and what it would bring. Pure.

The changes are in the order of their price: first what costs nothing, then more environments, then
more processes. Of those that help the side that binds, the verdict is the first one that brings a
tenth or more. `learner.report.balance` is the model of the whole; what it has no stage for is here,
with X the steps/s of the run, N env servers, and u = X t / N the share of the time in which an env
server steps, t seconds for a step without the messages:

    env servers as fast as the median   sum max(x, median) / sum x, x the steps/s of each
    half the batch deadline             1 / (1 - w / 2), w the share of the time until it
    two groups instead of one           1 / u: env servers step while actions are computed
    twice the environments              2 / (1 + u): a step more in each turn, at the time of one
    without other programs              1 / (1 - f q), f the share of the time that needs a core, q
                                        that of it in which there is none

Each is at most what learning and the cores allow.
"""

import math
import statistics
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from learner.report.balance import LEAST_GAIN, Costs, capacities, gain
from learner.report.stages import COMPUTING, STAGES
from learner.report.status import Verdict

# Below this share of the time neither side counts as waiting.
_LEAST_SHARE = 0.05
# From this share on all cores count as busy.
_FULL_SHARE = 0.95
# Above it an env server has no time for more environments.
_MOST_BUSY = 0.5
# Shorter turns of an env server may be mostly a message, which half as many environments pay too.
_LEAST_TURN_SECONDS = 0.005


class Conditions(NamedTuple):
    """What the metrics of a run do not have."""

    rates: Mapping[str, float] = {}  # steps/s of each env server for one of its environments
    groups: int = 2  # of training environments, of the env server with the fewest
    environments: int = 1  # that train, of the env server with the fewest
    deadline_seconds: float = 0.0  # of a batch
    epochs: int = 1  # over what an update learns from


def verdict(metrics: Mapping[str, float], costs: Costs, conditions: Conditions) -> Verdict:
    """The cause, and the change to make."""
    number = conditions.environments
    env_server = Verdict(
        cause="slow environments",
        # With its environments: the same ones on more env servers may even be slower.
        change=f"one more env server, of {number} environment{'s' * (number > 1)}",
        gain=gain(costs, costs.env_servers + 1),
    )
    learning = _of_learning(metrics, costs, conditions)
    own = metrics.get("env_own_step_ms", 1e3 * costs.environment) / 1e3
    busy = min(1.0, own * metrics["env_steps_per_second"] / costs.env_servers)
    # Env servers may compute, or wait for something else.
    computes = metrics.get("env_servers_cpu_seconds_per_second", 0.0) / costs.env_servers
    sleeps = 1 - min(1.0, computes / max(busy, 1e-9))
    needs_core = 1 - sleeps * metrics.get("acting_environment_share", 0.0)
    changes: list[Verdict] = []
    if costs.takes_turns:
        last = max(env_server, learning, key=lambda each: each.gain)
    elif metrics["acting_waits_share"] > metrics["learning_waits_share"]:
        needs_core, last = 1 - metrics["learning_waits_share"], learning
    else:
        changes, last = list(_of_sampling(metrics, costs, conditions, busy)), env_server
    changes = [_neighbour(metrics, costs, needs_core), *changes]
    return next((each for each in changes if each.gain >= LEAST_GAIN), last)


def _neighbour(metrics: Mapping[str, float], costs: Costs, needs_core: float) -> Verdict:
    learner, env_servers, delay, others = (
        metrics.get(f"{what}_seconds_per_second", 0.0)
        for what in ("learner_cpu", "env_servers_cpu", "learner_cpu_delay", "other_cpu")
    )
    # A device may do the work, while the threads sleep.
    needs_core = min(needs_core, learner + env_servers + delay)
    # Of the time with something to do; ours wait for each other, too.
    without_core = min(
        delay / max(delay + learner, 1e-9), others / max(others + learner + env_servers, 1e-9)
    )
    change = f"without other programs, which take {others:.1f} of {costs.cores} cores"
    more = 1 / max(1 - needs_core * without_core, 1e-9) - 1
    return Verdict(cause="busy neighbour", change=change, gain=more)


def _of_sampling(
    metrics: Mapping[str, float], costs: Costs, conditions: Conditions, busy: float
) -> Iterator[Verdict]:
    # `busy`: the share of the time in which an env server steps.
    limits = capacities(costs, costs.env_servers)
    # What sampling may gain until something else binds.
    most = min(limits.get(stage, math.inf) for stage in ("learning", "cores"))
    most = most / min(limits.values()) - 1
    if rates := conditions.rates:
        slowest, median = min(rates, key=rates.__getitem__), statistics.median_high(rates.values())
        if rates[slowest] < median / 2:
            more = sum(max(each, median) for each in rates.values()) / sum(rates.values()) - 1
            change = f"env server {slowest} as fast as the others"
            yield Verdict(cause="one straggler", change=change, gain=min(most, more))
    waits = metrics.get("late_batches_per_second", 0.0) * conditions.deadline_seconds
    waits = min(waits, metrics.get("acting_batch_share", 0.0))
    now = 1e3 * conditions.deadline_seconds
    change = f"batch deadline {now / 2:g} ms instead of {now:g} ms"
    yield Verdict(cause="long deadline", change=change, gain=min(most, 1 / (1 - waits / 2) - 1))
    acting = sum(metrics.get(f"acting_{stage}_share", 0.0) for stage in COMPUTING)
    is_long = costs.environment * conditions.environments >= _LEAST_TURN_SECONDS
    if conditions.groups == 1 and conditions.environments > 1 and is_long:
        # The batches of a single env server are half as large then.
        bound = acting * (2 if costs.env_servers == 1 else 1)
        more = 1 / max(busy, bound, 1e-9) - 1
        yield Verdict(cause="too few groups", change="2 groups instead of 1", gain=min(most, more))
    if busy < _MOST_BUSY:
        owed = costs.environment * metrics["env_steps_per_second"] / costs.env_servers
        is_on_the_way = min(1.0, owed) - busy > acting
        yield Verdict(
            cause="slow network" if is_on_the_way else "small batches",
            change="twice the environments of each env server",
            gain=min(most, (1 - busy) / (1 + busy)),
        )


def _of_learning(metrics: Mapping[str, float], costs: Costs, conditions: Conditions) -> Verdict:
    now = costs.env_servers
    if ratio := metrics.get("replay_ratio_target"):
        limits = capacities(costs, now)
        # With each step learned once, would learning still bind?
        is_high = ratio > 1 and limits.pop("learning", 0.0) * ratio >= min(limits.values())
        return Verdict(
            cause="high replay ratio" if is_high else "slow updates",
            change=f"replay ratio {ratio / 2:g} instead of {ratio:g}",
            gain=gain(costs, now, ratio=0.5),
        )
    if (epochs := conditions.epochs) > 1:
        half = epochs // 2
        change = f"{half} epoch{'s' * (half > 1)} instead of {epochs}"
        more = gain(costs, now, ratio=half / epochs)
        return Verdict(cause="full queue", change=change, gain=more)
    # More environments would only make what is learned from older.
    return Verdict(cause="full queue", change="", gain=0.0)


def sentence(
    metrics: Mapping[str, float], costs: Costs | None, found: Verdict | None = None
) -> str:
    """Which side waits, and the change to make; empty if that is not measured."""
    acting = metrics.get("acting_waits_share")
    learning = metrics.get("learning_waits_share")
    if acting is None or learning is None:
        return ""
    cause = "" if found is None else f" ({found.cause})"
    # With one group the time of messages is not known.
    if found and found.cause == "slow environments" and "env_own_step_ms" not in metrics:
        cause = " (slow environments or network)"
    if max(acting, learning) < _LEAST_SHARE:
        parts = [f"neither side waits{cause}"]
    elif acting > learning:
        parts = [f"learning binds{cause}: acting waits {acting:.0%} of the time"]
    else:
        stages = {stage: metrics.get(f"acting_{stage}_share", 0.0) for stage in STAGES["acting"]}
        stage = max(stages, key=stages.__getitem__)
        parts = [
            f"acting binds{cause}: learning waits {learning:.0%} of the time, and acting spends "
            f"{stages[stage]:.0%} of it on {stage}"
        ]
    if costs is None:
        return parts[0]
    learner, env_servers = (
        metrics.get(f"{what}_cpu_seconds_per_second", 0.0) for what in ("learner", "env_servers")
    )
    if learner + env_servers >= _FULL_SHARE * costs.cores:
        parts[0] += f"; all {costs.cores} cores are busy"
    if found is not None and found.change:
        parts.append(f"{found.change}: {found.gain:+.0%} steps/s")
    return "; ".join(parts)
