"""Which side binds a run, and a model of what a change would bring. Pure.

Each stage has a capacity in time steps per second, and the run gets the smallest one. With N env
servers, of which each needs t seconds for a step, a seconds of acting a step at N env servers, l of
learning and c seconds of processor time on C cores (Denning and Buzen 1978, the utilization law):

    environments N / t     acting 1 / a     learning 1 / l     cores C / c

More env servers make larger batches, not more of them: acting with N' of them costs a N / N'. The
same holds for its part of c. A replay ratio r' in place of r makes l, and its part of c, r' / r as
large. Env servers of one group wait while half of them are acted for: N / (t + a N / 2). If acting
and learning take turns there is one capacity, 1 / (t / N + a + l).

A model of averages: it is too high near the point where two capacities are equal. Its tests have a
simulation (tests/learner/report/test_balance.py).

Worked example: t = 10 ms, N = 4, a = 0.5 ms, l = 1.25 ms, c = 0.8 ms, C = 2. Environments 400,
acting 2,000, learning 800, cores 2,500: environments bind, at 400 steps/s. A fifth env server gives
500, +25 %. From 800 * 0.010 = 8 env servers on learning binds: half its ratio would give 1,600.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

from learner.report.stages import STAGES

# Below this share of the time neither side counts as waiting.
_LEAST_SHARE = 0.05
# From this share on all cores count as busy.
_FULL_SHARE = 0.95


class Costs(NamedTuple):
    """What one environment step costs, in seconds, measured with a number of env servers."""

    env_servers: int
    environment: float  # of one env server
    acting: float  # of the acting thread, without its waits
    learning: float  # of the learning thread, without its waits
    cores: int
    # Of processors, by who needs it.
    environment_cpu: float = 0.0
    acting_cpu: float = 0.0
    learning_cpu: float = 0.0
    groups: int = 2  # of each env server: with one it waits while its actions are computed
    takes_turns: bool = False  # acting and learning never overlap, as with `synchronous`


def capacities(costs: Costs, env_servers: float, *, ratio: float = 1.0) -> dict[str, float]:
    """Time steps per second that each stage could do. `ratio` is relative to the measured one."""
    grown = env_servers / costs.env_servers
    acting = costs.acting / grown
    environment = costs.environment / env_servers
    if costs.groups == 1:  # a batch has half of the env servers, which wait for it
        environment += acting / 2
    processors = costs.environment_cpu + costs.acting_cpu / grown + costs.learning_cpu * ratio
    if costs.takes_turns:
        turn = costs.environment / env_servers + acting + costs.learning * ratio
        return {"turns": 1 / turn}
    seconds = {
        "environments": environment,
        "acting": acting,
        "learning": costs.learning * ratio,
        "cores": processors / costs.cores,
    }
    return {stage: 1 / cost for stage, cost in seconds.items() if cost > 0}


def steps_per_second(costs: Costs, env_servers: float, *, ratio: float = 1.0) -> float:
    """Time steps per second with N env servers."""
    return min(capacities(costs, env_servers, ratio=ratio).values())


def gain(costs: Costs, env_servers: float, *, ratio: float = 1.0) -> float:
    """Relative growth of time steps per second: 0.25 is a quarter more."""
    # Of two predictions: what the model leaves out is in both.
    before = steps_per_second(costs, costs.env_servers)
    return steps_per_second(costs, env_servers, ratio=ratio) / before - 1


def saturation(costs: Costs, *, ratio: float = 1.0) -> float:
    """Number of env servers, as a real number, from which more bring nothing."""
    # Environments and acting grow with the number; what remains is learning or the cores. Of these
    # the cores grow too, so the number falls from above to where the two are equal.
    number = 1e9
    for _ in range(100):
        limits = capacities(costs, number, ratio=ratio)
        level = min(limits.pop(stage, math.inf) for stage in ("learning", "cores"))
        number = level / (min(limits.values()) / number)
    return number


def advice(costs: Costs, now: int, *, replay_ratio: float | None = None) -> str:
    """What to change with so many env servers, and what that would bring."""
    enough = max(1, math.ceil(saturation(costs) - 0.05))  # a twentieth of one brings nothing
    most = max(now, enough)
    limits = capacities(costs, most)
    limit = "learning" if limits["learning"] < limits.get("cores", math.inf) else "the cores"
    then = steps_per_second(costs, most)
    if now < enough:
        more = then / steps_per_second(costs, now) - 1
        text = f"env servers bind: {enough} instead of {now} give {more:+.0%}, then {limit} binds"
    else:
        text = f"{limit} binds: {enough} of {now} env servers are enough"
    if replay_ratio is not None:
        more = steps_per_second(costs, most, ratio=0.5) / then - 1
        text += f". Then replay ratio {replay_ratio / 2:g} instead of {replay_ratio:g}: {more:+.0%}"
    return text


def costs_of(
    metrics: Mapping[str, float], *, cores: int, groups: int = 2, takes_turns: bool = False
) -> Costs | None:
    """The costs that an interval of metrics shows; None if it has not all of them."""
    rate, env_servers = metrics.get("env_steps_per_second", 0.0), metrics.get("env_servers", 0.0)
    waits = [metrics.get(f"{side}_waits_share") for side in ("acting", "learning")]
    if rate <= 0 or env_servers < 1 or "env_step_ms" not in metrics or None in waits:
        return None
    # As acting and learning share the learner's threads, so they share its processor time.
    acting = sum(
        metrics.get(f"acting_{stage}_share", 0.0) for stage in ("transfer", "act", "wire", "other")
    )
    learning = 1 - metrics["learning_waits_share"]
    if min(acting, learning, metrics["env_step_ms"]) <= 0:  # one of them has not started
        return None
    learner_cpu = metrics.get("learner_cpu_seconds_per_second", 0.0) / rate
    part = acting / max(acting + learning, 1e-9)
    return Costs(
        env_servers=int(env_servers),
        environment=metrics["env_step_ms"] / 1e3,
        acting=acting / rate,
        learning=learning / rate,
        cores=cores,
        environment_cpu=metrics.get("env_servers_cpu_seconds_per_second", 0.0) / rate,
        acting_cpu=learner_cpu * part,
        learning_cpu=learner_cpu * (1 - part),
        groups=groups,
        takes_turns=takes_turns,
    )


def sentence(metrics: Mapping[str, float], costs: Costs | None) -> str:
    """Which side waits, and what two changes would bring; empty if that is not measured."""
    acting = metrics.get("acting_waits_share")
    learning = metrics.get("learning_waits_share")
    if acting is None or learning is None:
        return ""
    if max(acting, learning) < _LEAST_SHARE:
        parts = ["neither side waits"]
    elif acting > learning:
        parts = [f"learning binds: acting waits {acting:.0%} of the time"]
    else:
        stages = {stage: metrics.get(f"acting_{stage}_share", 0.0) for stage in STAGES["acting"]}
        stage = max(stages, key=stages.__getitem__)
        parts = [
            f"sampling binds: learning waits {learning:.0%} of the time, and acting spends "
            f"{stages[stage]:.0%} of it on {stage}"
        ]
    if costs is None:
        return parts[0]
    busy = sum(
        metrics.get(f"{who}_cpu_seconds_per_second", 0.0) for who in ("learner", "env_servers")
    )
    if busy >= _FULL_SHARE * costs.cores:
        parts[0] += f"; all {costs.cores} cores are busy"
    parts.append(f"one more env server: {gain(costs, costs.env_servers + 1):+.0%}")
    if ratio := metrics.get("replay_ratio_target"):
        more = gain(costs, costs.env_servers, ratio=0.5)
        parts.append(f"replay ratio {ratio / 2:g} instead of {ratio:g}: {more:+.0%}")
    return "; ".join(parts)
