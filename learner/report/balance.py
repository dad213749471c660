"""Which side binds a run, and a model of what a change would bring. Pure.

Each stage has a capacity in time steps per second, and the run gets the smallest one (Denning and
Buzen 1978, the utilization law). With N env servers, of which each needs t seconds for a step; s
seconds of the acting thread for a step, all but its waits for learning; l seconds of the learning
thread, without its waits; and c seconds of processor time on C cores:

    environments N / t     sampling 1 / s     learning 1 / (l + w)     cores C / c

s has what environments and acting cost each other by taking turns, as it was measured. More env
servers make larger batches, not more of them: with N' of them s is s N / N'. The same holds for
acting's part of c. A replay ratio r' in place of r makes l, and its part of c, r' / r as large. If
acting and learning take turns there is one capacity, 1 / (s + l).

While learning binds, its k threads always want to run, and wait where env servers and acting have
the cores: w seconds a step. So learning binds before all cores are busy. k is its processor time
over l, rounded up, as an update waits for the last of its threads. With b the seconds of l in which
learning needs a core, and u the share of the cores that the others use at this capacity,

    w = b u^(sqrt(2 (m + 1)) - 1) / (m (1 - u)),   m = C / k

as long as one waits for one of m servers (Sakasegawa 1977). For m = 1, with a single core or
threads for all of them, learning gets the 1 - u that are left. A measured l has waits already: what
it would be without them follows from the u of the measured run.

A model of averages: it is too high near the point where two capacities are equal. Its tests have a
simulation (tests/learner/report/test_balance.py).

Worked example: t = 10 ms, N = 4, s = 2.8 ms, l = 1.25 ms, C = 2, and c = 0.8 ms, of which learning
needs 0.3 ms: k = 1, b = 0.3 ms. Environments 400, sampling 357, cores 2,500. Others use u = 20 % of
the cores: w = 0.02 ms, learning 789. Acting binds, at 357 steps/s. A fifth env server gives 446,
+25 %. From 794 * 0.0028 * 4 = 9 env servers on learning binds: half the ratio makes it 1,577.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

from learner.report.stages import COMPUTING, STAGES

# What a change has to bring to be named.
LEAST_GAIN = 0.1
_PART_OF_A_THREAD = 0.05  # processor time beside an update: too little to count as one more thread


class Costs(NamedTuple):
    """What one environment step costs, in seconds, measured with a number of env servers."""

    env_servers: int
    environment: float  # of one env server
    sampling: float  # of the acting thread, without its waits for learning
    learning: float  # of the learning thread, without its waits
    cores: int
    # Of processors, by who needs it.
    environment_cpu: float = 0.0
    acting_cpu: float = 0.0
    learning_cpu: float = 0.0
    used: float = 0.0  # share of the cores that acting and env servers used meanwhile
    takes_turns: bool = False  # acting and learning never overlap, as with `synchronous`
    act: float = 0.0  # of `sampling`, the agent's program


def capacities(costs: Costs, env_servers: float, *, ratio: float = 1.0) -> dict[str, float]:
    """Time steps per second that each stage could do. `ratio` is relative to the measured one."""
    grown = env_servers / costs.env_servers
    sampling, learning = costs.sampling / grown, costs.learning * ratio
    if costs.takes_turns:
        return {"turns": 1 / (sampling + learning)}
    others = costs.environment_cpu + costs.acting_cpu / grown
    learning_cpu = costs.learning_cpu * ratio
    seconds = {
        "environments": costs.environment / env_servers,
        "sampling": sampling,
        "learning": _shared(costs, others, learning, learning_cpu),
        "cores": (others + learning_cpu) / costs.cores,
    }
    return {stage: 1 / cost for stage, cost in seconds.items() if cost > 0}


def _shared(costs: Costs, others: float, learning: float, learning_cpu: float) -> float:
    """Seconds of learning for a step, for which others need `others` seconds of the same cores."""
    threads = max(1, math.ceil(learning_cpu / learning - _PART_OF_A_THREAD))
    servers = costs.cores / min(costs.cores, threads)

    def slowdown(used: float) -> float:
        return 1 + used ** (math.sqrt(2 * (servers + 1)) - 1) / (servers * (1 - used))

    measured = slowdown(costs.used)
    on_cores = min(learning, learning_cpu * measured)
    low, high = 0.0, 1.0  # share of the cores that others use; the larger, the later a step
    for _ in range(30):
        used = (low + high) / 2
        seconds = learning + on_cores * (slowdown(used) / measured - 1)
        low, high = (used, high) if used * seconds * costs.cores < others else (low, used)
    return seconds


def steps_per_second(costs: Costs, env_servers: float, *, ratio: float = 1.0) -> float:
    """Time steps per second with N env servers."""
    return min(capacities(costs, env_servers, ratio=ratio).values())


def gain(costs: Costs, env_servers: float, *, ratio: float = 1.0) -> float:
    """Relative growth of time steps per second: 0.25 is a quarter more."""
    # Of two predictions: what the model leaves out is in both.
    before = steps_per_second(costs, costs.env_servers)
    return steps_per_second(costs, env_servers, ratio=ratio) / before - 1


def saturation(costs: Costs) -> float:
    """Number of env servers, as a real number, from which more bring nothing."""
    # Environments and acting grow with the number; what remains is learning or the cores. These
    # grow too, but less, so the number falls from above to where the two are equal.
    number = 1e9
    for _ in range(100):
        limits = capacities(costs, number)
        level = min(limits.pop(stage, math.inf) for stage in ("learning", "cores"))
        number = level / (min(limits.values()) / number)
    return number


def advice(costs: Costs, now: int, *, replay_ratio: float | None = None) -> str:
    """What to change in a run with `now` env servers, and what that would bring."""
    enough = max(1, math.ceil(saturation(costs) - 0.05))  # a twentieth of one brings nothing
    most = max(now, enough)
    limits = capacities(costs, most)
    # Would it be learning if no thread waited for a core?
    is_learning = costs.learning * limits.get("cores", math.inf) > 1
    limit = "learning binds" if is_learning else "the cores bind"
    then = steps_per_second(costs, most)
    if now < enough:
        more = then / steps_per_second(costs, now) - 1
        text = f"env servers bind: {enough} instead of {now} give {more:+.0%}, then {limit}"
    else:
        text = f"{limit}: {enough} of {now} env servers are enough"
    if replay_ratio is not None:
        more = steps_per_second(costs, most, ratio=0.5) / then - 1
        change = (
            f". Then replay ratio {replay_ratio / 2:g} instead of {replay_ratio:g}: {more:+.0%}"
        )
        text += change * (more >= LEAST_GAIN)
    return text


def slowed(costs: Costs, environment: float) -> Costs:
    """The costs with another time of an env server for a step."""
    more = (environment - costs.environment) / costs.env_servers
    return costs._replace(environment=environment, sampling=max(0.0, costs.sampling + more))


def accelerated(costs: Costs, times: float) -> Costs:
    """The costs with a device that is `times` as fast at acting and learning."""
    return costs._replace(
        sampling=costs.sampling - costs.act * (1 - 1 / times),
        act=costs.act / times,
        learning=costs.learning / times,
        learning_cpu=costs.learning_cpu / times,
    )


def costs_of(
    metrics: Mapping[str, float], *, cores: int, takes_turns: bool = False
) -> Costs | None:
    """The costs that an interval of metrics shows; None if it has not all of them."""
    rate, env_servers = metrics.get("env_steps_per_second", 0.0), metrics.get("env_servers", 0.0)
    environment = metrics.get("env_step_ms", 0.0) / 1e3
    sampling, learning = (
        1 - metrics.get(f"{side}_waits_share", 1.0) for side in ("acting", "learning")
    )
    if metrics.get("updates_per_second"):
        # A wait counts where it ends: its share may be all of an interval that has an update, too.
        stages = [stage for stage in STAGES["learning"] if stage != "waits"]
        worked = sum(metrics.get(f"learning_{stage}_share", 0.0) for stage in stages)
        learning = max(learning, worked)
    if rate <= 0 or env_servers < 1 or environment <= 0 or min(sampling, learning) <= 0:
        return None  # acting or learning has not started
    # As acting and learning share the learner's threads, so they share its processor time.
    computing = sum(metrics.get(f"acting_{stage}_share", 0.0) for stage in COMPUTING)
    learner_cpu = metrics.get("learner_cpu_seconds_per_second", 0.0) / rate
    part = computing / (computing + learning)
    acting_cpu = learner_cpu * part
    environment_cpu = metrics.get("env_servers_cpu_seconds_per_second", 0.0) / rate
    return Costs(
        env_servers=round(env_servers),  # a mean, if some were away
        environment=environment,
        sampling=sampling / rate,
        learning=learning / rate,
        cores=cores,
        environment_cpu=environment_cpu,
        acting_cpu=acting_cpu,
        learning_cpu=learner_cpu - acting_cpu,
        used=min(0.95, rate * (environment_cpu + acting_cpu) / cores),
        takes_turns=takes_turns,
        act=metrics.get("acting_act_share", 0.0) / rate,
    )
