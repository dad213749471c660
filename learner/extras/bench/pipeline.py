"""Pipeline: environment steps through the whole system against what its parts would allow.

Once acting only, against the environments' own stepping rate and the bare network, and once
learning too, against both and the bare update. On a CPU the parts share its cores, so their times
add up. On an accelerator stepping and computing overlap, and the slower of the two is the limit.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax

from learner.extras.bench import workloads
from learner.extras.bench.measuring import (
    Pace,
    Result,
    apart,
    interleave,
    rate,
    serial,
    spread,
)
from learner.extras.bench.system import Interval, System, raw_stepping
from learner.extras.bench.workloads import BareUpdate, Workload, bare_forward
from seedrl.config import LaunchConfig
from seedrl.fields import with_fields

# The figures, and the parts of which the limit of each is composed.
FIGURES = {
    "acting": ("acting", ("stepping", "network")),
    "learning": ("acting and learning", ("stepping", "network", "update")),
}
_LATENCIES = ("reply_ms_p50", "reply_ms_p95", "reply_ms_p99", "batch_fill")


def run(pace: Pace) -> Iterator[Result]:
    """R2D2 on Pong, 64 environments a message, then on CartPole, replay ratio 1."""
    targets: dict[str, float | None] = {"acting": 0.85, "learning": 0.85}
    yield from apart(pong().config, results, pong(), pace, targets=targets)
    targets = {"acting": None, "learning": 0.7}
    yield from apart(cartpole().config, results, cartpole(), pace, targets=targets)


def pong() -> Workload:
    """Pong with 64 environments a message, small batches and a small replay."""
    return workloads.scaled(
        workloads.pong(),
        launch=LaunchConfig(env_servers=1, envs_per_server=128, groups=2),
        capacity_steps=20_000,  # filled within seconds
        batch_sequences=8,
    )


def cartpole() -> Workload:
    """CartPole with 128 environments a message, from two env servers."""
    return workloads.scaled(
        workloads.cartpole(),
        launch=LaunchConfig(env_servers=2, envs_per_server=256, groups=2),
        capacity_steps=100_000,
        # A sequence of each environment.
        min_steps=20_480,
        batch_sequences=64,
    )


def results(
    workload: Workload, pace: Pace, *, targets: Mapping[str, float | None]
) -> Iterator[Result]:
    """Results of one workload, for the figures that `targets` names."""
    all_rates, intervals = measure(workload, pace, list(targets))
    for key, target in targets.items():
        name, parts = FIGURES[key]
        rates = [all_rates[part] for part in parts]
        metrics = intervals[key].metrics
        yield Result(
            name=f"pipeline: {workload.name}, {name}",
            unit="steps/s",
            limit_name=" + ".join(parts),
            ours=all_rates[key],
            limits=tuple(_composed(*each) for each in zip(*rates, strict=True)),
            target=target,
            conditions=_conditions(workload, key),
            details={
                **{f"{part}/s": spread(all_rates[part]).median for part in parts},
                **{name: metrics[name] for name in _LATENCIES if name in metrics},
            },
        )


def measure(
    workload: Workload, pace: Pace, figures: Sequence[str]
) -> tuple[dict[str, tuple[float, ...]], dict[str, Interval]]:
    """Steps per second of each figure and part, a number a round, and what the systems did last."""
    intervals: dict[str, Interval] = {}
    configs = {"learning": workload.config}
    if "acting" in figures:  # so few updates are owed that none is ever made
        configs["acting"] = with_fields(workload.config, {"replay.ratio": 1e-9})

    def of(key: str, system: System) -> Callable[[], float]:
        def measured() -> float:
            intervals[key] = system.run(pace.seconds, by_updates=key == "learning")
            return intervals[key].steps / intervals[key].seconds

        return measured

    with contextlib.ExitStack() as stack:
        systems = {key: stack.enter_context(System(configs[key])) for key in figures}
        stepping = stack.enter_context(raw_stepping(workload.config))
        learning = systems["learning"]
        # Until replay is filled nothing is learned: that is no part of what is measured.
        learning.run_until(lambda: learning.parts.learning.updates > 0)
        # Batches aim at half of the environments, while the other half steps.
        network = bare_forward(workload, learning.served.config.serving.training_slots // 2)
        update = BareUpdate(workload)
        update.learn()  # compiles
        measures = {
            "stepping": lambda: stepping(pace.seconds),
            "network": lambda: rate(network, pace.seconds),
            "update": lambda: rate(update.learn, pace.seconds),
            **{key: of(key, system) for key, system in systems.items()},
        }
        return interleave(measures, pace.rounds), intervals


def _conditions(workload: Workload, key: str) -> dict[str, Any]:
    config, launch = workload.config, workload.config.launch
    found = {
        "messages": f"{launch.envs_per_server // launch.groups} environments each",
        "environments": f"{launch.env_servers} x {launch.envs_per_server} {workload.name}",
    }
    if key == "learning":
        found["updates"] = f"{config.learning.batch_sequences} sequences, replay ratio 1"
    return found


def _composed(stepping: float, *computing: float) -> float:
    if jax.local_devices()[0].platform == "cpu":
        return serial(stepping, *computing)  # the parts share its cores
    return min(stepping, serial(*computing))
