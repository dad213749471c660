"""`seedrl plan CONFIG`: the machines that a fleet needs, and what holds it up."""

import dataclasses
import functools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from learner.cli.arguments import parse_flags, require_file
from seedrl import config_file
from seedrl.config import Config
from seedrl.errors import ConfigError
from seedrl.exit_codes import ExitCode
from seedrl.programs import extras

if TYPE_CHECKING:  # imports jax
    from learner.planning.costs import Costs
    from learner.planning.demand import Demand, Machines
    from learner.planning.plan import Sizing
    from learner.planning.programs import Programs
    from learner.planning.report import Plan, Price
    from seedrl.specs import EnvSpec

PROG = "seedrl plan"
_COUNTS = ("environments", "envs_per_server", "learner_cores")
_SHARES = ("headroom", "device_share")
_POSITIVE = (
    *("step_ms", "network_gbit", "update_ms", "act_us"),
    *("device_usd_per_hour", "core_usd_per_hour"),
)


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """Says what a fleet that does not exist yet would need: learner hosts, cores of env servers,
    network, memory of devices, and what binds. It computes with what the parts cost: measured
    beforehand, here and now (--measure), or given. Nothing is trained.

    Attributes:
      config: as of `seedrl train`.
      environments: all of them, on all env servers.
      step_ms: what one environment's step takes, in milliseconds; those of a group take turns.
      step_cpu_ms: of that, what it computes; by default all of it.
      equal_steps: each step takes exactly that long: those answered together come back together.
      envs_per_server: environments of each env server; by default as CONFIG deals its slots.
      accelerator: of each learner host, as of `seedrl launch`: cpu, or NAME or NAME:COUNT.
      learner_cores: that a learner host computes with if it has no accelerator.
      hosts: of the learner; 0 finds the fewest that carry all environments.
      headroom: the most of each of the learner's resources that may be in use.
      costs: file with what the parts cost, which --write-costs made; by default figures of ours.
      measure: measure here what the parts cost; about half a minute, with nothing else running.
      write_costs: file for what was measured.
      device_share: what programs reach of the operations that a device can do at its best; by
        default 0.3 on CPUs, which was measured, and 0.1 on accelerators, which is assumed.
      update_ms: of devices, for an update, over all of them, instead of an estimate.
      act_us: of a device, for each environment in a batch, in microseconds, instead of an estimate.
      network_gbit: into a learner host, in Gbit/s.
      device_usd_per_hour: of an accelerator, instead of the bundled price.
      core_usd_per_hour: of a core of env servers, or of a learner without accelerator, instead of
        the bundled price.
      json: print one JSON object.
    """

    config: Annotated[str, tyro.conf.Positional]
    environments: int
    step_ms: float
    step_cpu_ms: float | None = None
    equal_steps: bool = False
    envs_per_server: int | None = None
    accelerator: str = "cpu"
    learner_cores: int = 8
    hosts: int = 0
    headroom: float = 0.8
    costs: Path | None = None
    measure: bool = False
    write_costs: Path | None = None
    device_share: float | None = None
    update_ms: float | None = None
    act_us: float | None = None
    network_gbit: float = 10.0
    device_usd_per_hour: float | None = None
    core_usd_per_hour: float | None = None
    json: bool = False


def run(argv: Sequence[str]) -> int:
    """Prints the plan; returns the exit code."""
    options = parse_flags(PlanOptions, argv, prog=PROG)
    _check(options)
    config = config_file.load(options.config)
    extras.require("learner")
    from learner.planning import report
    from learner.planning.plan import in_words

    plan = planned(options, config)
    if options.json:
        print(json.dumps(report.to_json(plan)))
        return ExitCode.OK
    rows = report.rows(plan)
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:<{width}}  {value}")
    print(f"\n{in_words(plan.sizing)}\n")
    for note in (*plan.notes, *plan.price.notes):
        print(f"  {note}")
    return ExitCode.OK


def planned(options: PlanOptions, config: Config) -> "Plan":
    """The plan. Raises ConfigError for what cannot be planned."""
    from learner.jobs import accelerators
    from learner.planning import catalog, report
    from learner.planning.plan import size
    from learner.planning.programs import programs_of
    from learner.planning.remarks import remarks

    accelerator = accelerators.parse(options.accelerator)
    devices = accelerator.count or 1
    computing = accelerator.count or options.learner_cores
    priced = accelerator.name if accelerator.count else catalog.CORE
    spec = _spec(config)
    machines = _machines(options, config, accelerator.count)
    # Operations are the same on however many hosts; what each device holds is looked at below.
    programs_on = functools.partial(programs_of, config, spec, slots=options.environments)
    hosts = max(1, options.hosts)
    programs = programs_on(machines=machines(hosts), hosts=hosts)
    costs, about_costs = _costs(options, programs, accelerator.name)
    demand = _demand(options, config, spec)
    sizing = size(
        costs,
        demand,
        machines,
        headroom=options.headroom,
        batch_sequences=config.learning.batch_sequences,
        hosts=options.hosts,
        regime=config.learning.regime,
    )
    if sizing.hosts != hosts:
        programs = programs_on(machines=machines(sizing.hosts), hosts=sizing.hosts)
    what = accelerator.in_words.removeprefix("on ") if accelerator.count else f"{computing} cores"
    usable_bytes = catalog.usable_bytes(accelerator.name)
    about_run = remarks(
        config, programs, demand, sizing, usable_bytes=usable_bytes, accelerator=options.accelerator
    )
    return report.Plan(
        config=options.config,
        demand=demand,
        costs=costs,
        sizing=sizing,
        programs=programs,
        accelerator=what,
        devices=devices,
        device_bytes=usable_bytes,
        price=_price(options, priced, computing, sizing),
        notes=(*about_costs, *about_run),
    )


def _machines(options: PlanOptions, config: Config, count: int) -> "Callable[[int], Machines]":
    """Of each of some hosts with `count` accelerators; 0 computes with cores."""
    from learner.planning.demand import machines_of

    return functools.partial(
        machines_of,
        config,
        devices=count or 1,
        cores=0 if count else options.learner_cores,
        network_bytes_per_second=1e9 / 8 * options.network_gbit,
    )


def _price(options: PlanOptions, name: str, count: int, sizing: "Sizing") -> "Price":
    """Of hosts with `count` devices of that name each, and of env servers."""
    from learner.planning import report

    return report.price_of(
        name,
        sizing.hosts * count,
        sizing.env_server_cores,
        device_usd=options.device_usd_per_hour,
        core_usd=options.core_usd_per_hour,
    )


def _spec(config: Config) -> "EnvSpec":
    """Of CONFIG's environment, which a process of its own builds."""
    from learner.bench.rigs.raw_stepping import RawStepping

    launch = dataclasses.replace(config.launch, env_servers=1, envs_per_server=1, groups=1)
    try:
        with RawStepping(dataclasses.replace(config, launch=launch)) as stepping:
            return stepping.spec
    except RuntimeError as error:
        raise ConfigError(
            f"environment.id: expected one that can be built here, got {config.environment.id!r}; "
            "`seedrl check-env` says what is wrong with it"
        ) from error


def _costs(
    options: PlanOptions, programs: "Programs", name: str
) -> tuple["Costs", tuple[str, ...]]:
    """What the parts cost, and where that is from: a line each."""
    from learner.planning import catalog
    from learner.planning.costs import BUNDLED, load, with_device

    costs = load(options.costs or BUNDLED)
    if options.measure:
        from learner.planning.measuring import measured
        from learner.session.process import tune_process

        # As a learner is: threads take turns fast.
        tune_process(keeps_freed_memory=False)
        costs = measured()
    if options.write_costs is not None:
        options.write_costs.write_text(json.dumps(costs.to_json(), indent=2) + "\n")
    device = catalog.device(name)
    share = options.device_share or (0.3 if name == "cpu" else 0.1)
    flops = 0.0 if device is None else share * device.flops
    return with_device(
        costs,
        programs.act_flops,
        programs.update_flops,
        flops=flops,
        act=None if options.act_us is None else 1e-6 * options.act_us,
        update=None if options.update_ms is None else 1e-3 * options.update_ms,
        name=name,
    ), (
        f"costs: {costs.measured}",
        f"devices: {name} at {share:g} of its best, {flops / 1e12:.3g} TFLOP/s"
        + (" (assumed)" if name != "cpu" and options.device_share is None else ""),
    )


def _demand(options: PlanOptions, config: Config, spec: "EnvSpec") -> "Demand":
    from learner.planning.demand import Demand
    from learner.planning.programs import message_bytes

    serving, launch = config.serving, config.launch
    slots = serving.training_slots + serving.evaluation_slots
    dealt = launch.envs_per_server or math.ceil(slots / max(1, launch.env_servers))
    envs_per_server = min(options.envs_per_server or dealt, options.environments)
    groups = min(launch.groups, envs_per_server)
    step_cpu_ms = options.step_ms if options.step_cpu_ms is None else options.step_cpu_ms
    trained = config.learning.batch_sequences * config.agent.window.unroll
    return Demand(
        environments=options.environments,
        envs_per_server=envs_per_server,
        groups=groups,
        step_seconds=1e-3 * options.step_ms,
        step_cpu_seconds=1e-3 * step_cpu_ms,
        equal_steps=options.equal_steps,
        groups_at_once=groups if launch.group_threads else 1,
        in_rounds=config.learning.regime != "asynchronous",
        batch_deadline_seconds=serving.batch_deadline_seconds,
        # A queue trains on each step once.
        steps_per_update=trained / getattr(config.replay, "ratio", 1.0),
        message_bytes=message_bytes(spec, math.ceil(envs_per_server / groups)),
    )


def _check(options: PlanOptions) -> None:
    _require(options, _COUNTS, lambda value: value >= 1, "at least 1")
    _require(options, ("hosts",), lambda value: value >= 0, "at least 1, or 0")
    _require(options, _POSITIVE, lambda value: 0 < value < math.inf, "more than 0")
    _require(options, _SHARES, lambda value: 0 < value <= 1, "more than 0 and at most 1")
    most = options.step_ms
    _require(
        options, ("step_cpu_ms",), lambda value: 0 <= value <= most, f"0 to {most:g}, --step-ms"
    )
    if options.measure and options.costs is not None:
        raise ConfigError("--costs: expected without --measure, which makes costs")
    require_file("--write-costs", options.write_costs)


def _require(
    options: PlanOptions, names: Sequence[str], is_legal: Callable[[float], bool], expected: str
) -> None:
    for name in names:
        value = getattr(options, name)
        if value is not None and not is_legal(value):
            raise ConfigError(f"--{name.replace('_', '-')}: expected {expected}, got {value:g}")
