"""Rules that span the fields of a configuration, checked before anything starts."""

import dataclasses
import inspect
import json
import math
import numbers
from collections.abc import Iterator
from typing import Any, get_args

from seedrl.agents.window import WindowSpec
from seedrl.config import Config, Schedule, ServingConfig
from seedrl.errors import ConfigError, naming_own_code
from seedrl.wire.address import address_fault, is_local
from seedrl.wire.version import (
    LEAST_MESSAGE_BYTES,
    LONGEST_METRIC_BYTES,
    MOST_GROUPS,
    MOST_METRICS,
)

# Lowest and highest value of a field, both allowed.
_RANGES: dict[str, tuple[float, float]] = {
    "environment.frames_per_step": (1, math.inf),
    "environment.failures_per_minute": (1, 2**31 - 1),
    "environment.failures_per_hour": (1, 2**31 - 1),
    "serving.training_slots": (1, math.inf),
    "serving.evaluation_slots": (0, math.inf),
    "serving.inference_devices": (0, math.inf),
    "serving.batch_deadline_seconds": (0, 60),
    "serving.ready_deadline_seconds": (0, 600),  # after which env servers give up by themselves
    "serving.step_deadline_seconds": (0, math.inf),
    # Twice as much is what gRPC holds, which counts in 32 bits.
    "serving.max_message_bytes": (0, 2**30 - 1),
    "learning.batch_sequences": (1, math.inf),
    "learning.publish_every_updates": (1, math.inf),
    "learning.total_steps": (1, math.inf),
    "learning.num_devices": (0, math.inf),
    "learning.max_skipped_updates": (1, math.inf),
    "evaluation.interval_seconds": (0, math.inf),
    "evaluation.episodes": (1, math.inf),
    "evaluation.confirm_episodes": (1, math.inf),
    "checkpoint.keep": (2, math.inf),
    "launch.env_servers": (0, math.inf),
    "launch.envs_per_server": (0, math.inf),
    "launch.groups": (1, MOST_GROUPS),
    "seed": (0, 2**31 - 1),
}
_POSITIVE = (
    "environment.max_abs_reward",
    "checkpoint.interval_seconds",
    "logging.interval_seconds",
    "serving.ready_deadline_seconds",
)


def check(config: Config) -> None:
    """Refuses a configuration that cannot work, or would wait for ever.

    Raises:
      ConfigError: the first rule that is broken, in one line that names the field.
    """
    _check_numbers(config)
    _check_environment(config)
    check_bind(config.serving)
    _check_health(config.logging.health_bind)
    _check_message_limit(config.serving.max_message_bytes)
    window = _check_agent(config)
    _check_replay(config, window)
    _check_learning(config)
    _check_schedule(config)
    _check_evaluation(config)
    _check_launch(config)


def page_steps(config: Config) -> int:
    """K, the steps of a page."""
    steps: int = config.replay.steps_of_page(config.agent.window)
    return steps


def check_bind(serving: ServingConfig) -> None:
    """Refuses an address of the wrong form, or one that others reach who need not show a token.

    Raises:
      ConfigError: `bind` is neither `host:port` nor `unix:/path`, or what it needs is not given.
    """
    bind = serving.bind
    if bool(serving.certificate) != bool(serving.private_key):
        raise ConfigError("serving.certificate: expected serving.private_key with it, and no less")
    if serving.authority and not serving.certificate:
        raise ConfigError("serving.authority: expected serving.certificate with it")
    if bind and (fault := address_fault(bind)):
        raise ConfigError(f"serving.bind: {fault}")
    if not bind or bind.startswith("unix:") or serving.insecure:
        return
    if is_local(bind) and not serving.token_file:
        raise ConfigError(
            f"serving.bind: every user of this machine reaches {bind!r}; set serving.token_file, "
            "leave serving.bind out for a private socket, or set serving.insecure"
        )
    if not is_local(bind) and not (serving.certificate and serving.token_file):
        raise ConfigError(
            f"serving.bind: {bind!r} can be reached from other machines; expected "
            "serving.certificate, serving.private_key and serving.token_file, which `seedrl "
            "certificates` makes, or serving.insecure on a network that you trust"
        )


def _check_health(bind: str) -> None:
    fault = bind and (address_fault(bind) or (bind.startswith("unix:") and "expected host:port"))
    if fault:
        raise ConfigError(f"logging.health_bind: {fault}")


def _check_message_limit(num_bytes: int) -> None:
    if 0 < num_bytes < LEAST_MESSAGE_BYTES:
        raise ConfigError(
            f"serving.max_message_bytes: expected at least {LEAST_MESSAGE_BYTES}, or 0 for what "
            f"observations take, got {num_bytes}"
        )


def _check_numbers(config: Config) -> None:
    for path, value in _numbers("", config):
        if not math.isfinite(value):
            raise ConfigError(f"{path}: expected a finite number, got {value}")
        low, high = _RANGES.get(path, (-math.inf, math.inf))
        if not low <= value <= high:
            expected = f"at least {low}" if high == math.inf else f"{low} to {high}"
            raise ConfigError(f"{path}: expected {expected}, got {value}")
        if path in _POSITIVE and value <= 0:
            raise ConfigError(f"{path}: expected more than 0, got {value}")


def _numbers(prefix: str, value: Any) -> Iterator[tuple[str, float]]:
    for field in dataclasses.fields(value):
        path, item = f"{prefix}{field.name}", getattr(value, field.name)
        if dataclasses.is_dataclass(item):
            yield from _numbers(f"{path}.", item)
        elif isinstance(item, int | float) and not isinstance(item, bool):
            yield path, item


def _check_environment(config: Config) -> None:
    environment = config.environment
    if not environment.id:
        raise ConfigError(
            "environment.id: expected a gymnasium id or package.module:factory, got ''"
        )
    try:
        arguments = json.loads(environment.arguments)
    except (TypeError, ValueError):  # not even text
        arguments = None
    if not isinstance(arguments, dict):
        raise ConfigError(
            "environment.arguments: expected a JSON object such as "
            f"'{{\"render_mode\": null}}', got {environment.arguments!r}"
        )
    names = environment.metrics
    is_named = all(name and len(name.encode()) <= LONGEST_METRIC_BYTES for name in names)
    if len(names) > MOST_METRICS or len(set(names)) != len(names) or not is_named:
        raise ConfigError(
            f"environment.metrics: expected at most {MOST_METRICS} different names of 1 to "
            f"{LONGEST_METRIC_BYTES} bytes, got {names!r}"[:300]
        )
    for wrapper in environment.wrappers:
        module, _, name = wrapper.partition(":")
        if not (name.isidentifier() and all(part.isidentifier() for part in module.split("."))):
            raise ConfigError(
                f"environment.wrappers: expected package.module:factory, got {wrapper!r}"
            )


def _check_agent(config: Config) -> WindowSpec:
    agent: Any = config.agent
    if not dataclasses.is_dataclass(agent) or isinstance(agent, type):
        raise ConfigError(f"agent: expected an instance of a frozen dataclass, got {agent!r}")
    # Looked up without being computed: what it raises is said below.
    has_window = inspect.getattr_static(agent, "window", None) is not None
    if not (has_window and callable(getattr(agent, "build", None))):
        raise ConfigError(
            f"agent: expected a config with `window` and `build(spec)` (see "
            f"seedrl.agents.agent.AgentConfig), got a {type(agent).__name__} without"
        )
    what = f"agent.window ({type(agent).__name__})"
    with naming_own_code(what):
        window = getattr(agent, "window")  # noqa: B009
    if not isinstance(window, WindowSpec):
        raise ConfigError(f"{what}: expected a seedrl.agents.window.WindowSpec, got {window!r:.80}")
    for name, least in {"burn_in": 0, "unroll": 1, "bootstrap": 0, "stride": 1}.items():
        steps = getattr(window, name)
        if not isinstance(steps, numbers.Integral) or steps < least:
            raise ConfigError(
                f"agent.window.{name}: expected a whole number of at least {least}, got {steps!r}"
            )
    return window


def _check_replay(config: Config, window: WindowSpec) -> None:
    replay = config.replay
    if not dataclasses.is_dataclass(config.replay) or isinstance(config.replay, type):
        raise ConfigError(f"replay: expected an instance of a frozen dataclass, got {replay!r}")
    offered = ("steps_of_page", "check", "build")
    if missing := [name for name in offered if not callable(getattr(replay, name, None))]:
        raise ConfigError(
            f"replay: expected a config with {', '.join(offered)} (see "
            f"seedrl.replay.experience.ExperienceConfig), got a {type(replay).__name__} without "
            f"{', '.join(missing)}"
        )
    replay.check(
        window,
        training_slots=config.serving.training_slots,
        total_steps=config.learning.total_steps,
    )


def _check_learning(config: Config) -> None:
    learning = config.learning
    if learning.num_devices and learning.batch_sequences % learning.num_devices:
        raise ConfigError(
            f"learning.batch_sequences: expected a multiple of learning.num_devices "
            f"({learning.num_devices}), got {learning.batch_sequences}"
        )


def _check_schedule(config: Config) -> None:
    schedule: str = config.learning.schedule
    if schedule not in get_args(Schedule):
        raise ConfigError(
            f"learning.schedule: expected {' or '.join(get_args(Schedule))}, got {schedule!r}"
        )
    if schedule != "asynchronous" and config.serving.inference_devices > 1:
        raise ConfigError(
            f"serving.inference_devices: expected at most 1 with learning.schedule {schedule}, "
            f"where a batch has all training slots, got {config.serving.inference_devices}"
        )
    if schedule == "synchronous":
        _check_rounds(config)
    if schedule != "deterministic":
        if config.learning.record:
            raise ConfigError(
                "learning.record: only a deterministic run can be played back; set "
                "learning.schedule to deterministic too"
            )
        return
    if config.serving.evaluation_slots:
        raise ConfigError(
            "serving.evaluation_slots: expected 0 with learning.schedule deterministic, where all "
            "slots step together and evaluation would depend on time, got "
            f"{config.serving.evaluation_slots}; use `seedrl evaluate`"
        )
    if not config.checkpoint.replay:
        raise ConfigError(
            "checkpoint.replay: expected it to be set with learning.schedule deterministic, else a "
            "resumed run would differ from an uninterrupted one"
        )


def _check_rounds(config: Config) -> None:
    agent, replay = type(config.agent).__name__, type(config.replay).__name__
    if not getattr(config.replay, "hands_out_rounds", False):
        raise ConfigError(
            f"learning.schedule: {agent} with {replay} cannot take synchronous, where each "
            "sequence is learned from once, right after it was acted; use asynchronous, or an "
            "agent that learns on policy with a seedrl.replay.queue.QueueConfig"
        )
    if config.learning.batch_sequences != config.serving.training_slots:
        raise ConfigError(
            "learning.batch_sequences: expected that of serving.training_slots "
            f"({config.serving.training_slots}) with learning.schedule synchronous, where a "
            f"round is one sequence of every slot, got {config.learning.batch_sequences}"
        )
    if config.learning.publish_every_updates != 1:
        raise ConfigError(
            "learning.publish_every_updates: expected 1 with learning.schedule synchronous, where "
            "a round is acted by what the one before has learned, got "
            f"{config.learning.publish_every_updates}"
        )


def _check_evaluation(config: Config) -> None:
    if config.evaluation.target_return is not None and not config.serving.evaluation_slots:
        raise ConfigError(
            f"evaluation.target_return: {config.evaluation.target_return} can only be measured "
            "with evaluation slots; set serving.evaluation_slots to at least 1, or no target"
        )


def _check_launch(config: Config) -> None:
    launch, serving = config.launch, config.serving
    offered = launch.env_servers * launch.envs_per_server
    slots = serving.training_slots + serving.evaluation_slots
    if offered and offered < slots:
        raise ConfigError(
            f"launch.envs_per_server: {launch.env_servers} env servers of {launch.envs_per_server} "
            f"environments offer {offered}, but serving has {slots} slots; 0 shares them out evenly"
        )
