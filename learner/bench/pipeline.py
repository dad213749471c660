"""Pipeline: environment steps through the whole system against what its parts would allow.

Once with an agent that does not think, against the environments' own stepping rate; once with the
real network, against stepping and the bare network; and once learning too, against both and the
bare update. On a CPU the parts share its cores, so their times add up. On an accelerator stepping
and computing overlap, and the slower of the two is the limit.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, NamedTuple

import jax

from learner.bench.measure import own_process
from learner.bench.measure.interleave import Pace, interleave, rate, serial, spread
from learner.bench.measure.result import Conditions, Result, conditions
from learner.bench.rigs import workloads
from learner.bench.rigs.bare_forward import bare_forward
from learner.bench.rigs.bare_learner import BareLearner
from learner.bench.rigs.bare_on_policy_learner import BareOnPolicyLearner
from learner.bench.rigs.null_agent import NullAgentConfig
from learner.bench.rigs.raw_stepping import RawStepping
from learner.bench.rigs.system import Interval, System
from learner.bench.rigs.workloads import Workload
from seedrl.agents.impala import ImpalaConfig
from seedrl.agents.ppo.config import PpoConfig
from seedrl.config import Config, LaunchConfig
from seedrl.networks.config import ActorCriticConfig

_PAGES_PER_INSERT = 16
# So few updates are owed that none is ever made.
_ACTING_ONLY = 1e-9


class Figure(NamedTuple):
    """A result to be: its name, and the parts of which its limit is composed."""

    name: str
    parts: tuple[str, ...]


_FIGURES = {
    "null": Figure("acting without a network", ("stepping",)),
    "acting": Figure("acting", ("stepping", "network")),
    "learning": Figure("acting and learning", ("stepping", "network", "update")),
}


class Measured(NamedTuple):
    """Environment steps per second of each figure and part, by name, one number a round.

    `intervals` are what the systems did in the last round, by figure.
    """

    rates: dict[str, tuple[float, ...]]
    intervals: dict[str, Interval]


def run(pace: Pace) -> Iterator[Result]:
    """R2D2 on Pong, 64 environments a message, then on CartPole, replay ratio 1; IMPALA and PPO."""
    all_three = {"null": 0.85, "acting": 0.85, "learning": 0.85}
    for workload, targets in ((pong(), all_three), (cartpole(), {"learning": 0.7})):
        yield from own_process.results(workload.config, results, workload, pace, targets=targets)
    for workload in on_policy_workloads():
        yield from own_process.results(workload.config, on_policy_results, workload, pace)


def pong() -> Workload:
    """Pong with 64 environments a message, small batches and a small replay."""
    return workloads.scaled(
        workloads.pong(),
        launch=LaunchConfig(env_servers=1, envs_per_server=128, groups=2),
        capacity_steps=20_000,
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


def on_policy_workloads() -> Iterator[Workload]:
    """IMPALA and PPO, asynchronous, in rollouts of 32 rows; each row goes through one update.

    CartPole as above, with two layers of 64; Pong with the Nature network, 32 environments a
    message.
    """
    tasks = (
        (workloads.cartpole(), 4096, cartpole().config.launch, _network("mlp", 64, 64)),
        (
            workloads.pong(),
            1024,
            LaunchConfig(env_servers=1, envs_per_server=64, groups=2),
            _network("nature", 512),
        ),
    )
    for workload, batch_rows, launch, network in tasks:
        impala = ImpalaConfig(network=network, unroll=31)
        ppo = PpoConfig(network=network, unroll=31, epochs=1, minibatches=1)
        for agent in (impala, ppo):
            yield workloads.on_policy(workload, agent, batch_rows=batch_rows, launch=launch)


def _network(torso: Literal["mlp", "nature"], *sizes: int) -> ActorCriticConfig:
    return ActorCriticConfig(torso=torso, torso_sizes=sizes, core="none")


def on_policy_results(workload: Workload, pace: Pace) -> Iterator[Result]:
    """Acting and learning of a workload of the on-policy queue, against its parts."""
    parts = _FIGURES["learning"].parts
    last: list[Interval] = []
    with System(workload.config) as system, RawStepping(workload.config) as stepping:
        system.run_until(lambda: system.parts.learning.updates > 0)
        network = bare_forward(workload, system.served.config.serving.training_slots // 2)
        learner = BareOnPolicyLearner(workload)
        learner.learn()

        def ours() -> float:
            last[:] = [system.run(pace.seconds, by_updates=True)]
            return last[0].steps / last[0].seconds

        rates = interleave(
            {
                "stepping": lambda: stepping.rate(pace.seconds),
                "network": lambda: rate(network, pace.seconds),
                "update": lambda: rate(learner.learn, pace.seconds),
                "ours": ours,
            },
            pace.rounds,
        )
    limits = zip(*(rates[part] for part in parts), strict=True)
    medians = {f"{part}/s": spread(rates[part]).median for part in parts}
    yield Result(
        name=f"pipeline: {workload.name}, acting and learning",
        unit="steps/s",
        limit_name=" + ".join(parts),
        ours=rates["ours"],
        limits=tuple(_composed(*each) for each in limits),
        target=0.85,
        conditions=described(workload, "learning"),
        details={**medians, **_latency(last[0])},
    )


def results(workload: Workload, pace: Pace, *, targets: Mapping[str, float]) -> Iterator[Result]:
    """The three results of one workload; `targets` by the key of the figure."""
    measured = measure(workload, pace)
    for key, figure in _FIGURES.items():
        parts = [measured.rates[part] for part in figure.parts]
        yield Result(
            name=f"pipeline: {workload.name}, {figure.name}",
            unit="steps/s",
            limit_name=" + ".join(figure.parts),
            ours=measured.rates[key],
            limits=tuple(_composed(*rates) for rates in zip(*parts, strict=True)),
            target=targets.get(key),
            conditions=described(workload, key),
            details={
                **{f"{part}/s": spread(measured.rates[part]).median for part in figure.parts},
                **_latency(measured.intervals[key]),
            },
        )


def measure(workload: Workload, pace: Pace) -> Measured:
    """Measures the three systems and their parts, interleaved."""
    intervals: dict[str, Interval] = {}

    def of(key: str, interval: Interval) -> float:
        intervals[key] = interval
        return interval.steps / interval.seconds

    with contextlib.ExitStack() as stack:
        null, acting, learning = (
            stack.enter_context(System(config)) for config in configs(workload.config)
        )
        stepping = stack.enter_context(RawStepping(workload.config))
        learning.run_until(lambda: learning.parts.learning.updates > 0)
        network = bare_forward(workload, acting.served.config.serving.training_slots // 2)
        update = bare_update(workload)
        rates = interleave(
            {
                "stepping": lambda: stepping.rate(pace.seconds),
                "null": lambda: of("null", null.run(pace.seconds)),
                "network": lambda: rate(network, pace.seconds),
                "acting": lambda: of("acting", acting.run(pace.seconds)),
                "update": lambda: rate(update, pace.seconds),
                "learning": lambda: of("learning", learning.run(pace.seconds, by_updates=True)),
            },
            pace.rounds,
        )
    return Measured(rates, intervals)


def configs(config: Config) -> tuple[Config, Config, Config]:
    """The configurations of the three systems: null, acting, learning."""
    replay = dataclasses.replace(config.replay, ratio=_ACTING_ONLY)
    acting = dataclasses.replace(config, replay=replay)
    agent = NullAgentConfig(window=config.agent.window)
    return dataclasses.replace(acting, agent=agent), acting, config


def bare_update(workload: Workload) -> Callable[[], float]:
    """An update; returns the environment steps that it makes up for."""
    learner = BareLearner(workload, pages_per_insert=_PAGES_PER_INSERT)
    learner.fill()
    config = workload.config
    trained_steps = config.learning.batch_sequences * config.agent.window.unroll

    def update() -> float:
        learner.learn()
        return trained_steps / config.replay.ratio

    update()
    return update


def _composed(stepping: float, *computing: float) -> float:
    if not computing or jax.local_devices()[0].platform == "cpu":
        return serial(stepping, *computing)
    return min(stepping, serial(*computing))


def described(workload: Workload, key: str) -> Conditions:
    """What the figure of that key was measured with."""
    config = workload.config
    launch = config.launch
    environment, _, _ = workload.name.partition(" by ")
    fields: dict[str, object] = {} if key == "learning" else {"replay_ratio": 0.0}
    if key == "null":
        fields["network"] = "none: actions at random"
    if key == "learning":
        fields["batch"] = f"{config.learning.batch_sequences} sequences"
    return conditions(
        config,
        messages=f"{launch.envs_per_server // launch.groups} environments each",
        environments=f"{launch.env_servers} x {launch.envs_per_server} {environment}",
        **fields,
    )


def _latency(interval: Interval) -> dict[str, float]:
    names = ("reply_ms_p50", "reply_ms_p95", "reply_ms_p99", "batch_fill")
    return {name: interval.metrics[name] for name in names if name in interval.metrics}
