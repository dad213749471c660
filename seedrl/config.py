"""The configuration of a run: frozen dataclasses, and the rules that their values must follow.

Reading a configuration imports neither jax nor numpy: a mistake in a command line shows at once.
"""

import dataclasses
import inspect
import json
import math
import numbers
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, Union, get_args, get_origin

from seedrl.agents.window import WindowSpec
from seedrl.errors import ConfigError, naming_own_code
from seedrl.ranges import check_ranges
from seedrl.replay.prioritized import ReplayConfig as ReplayConfig
from seedrl.wire.address import address_fault, is_local
from seedrl.wire.version import (
    LEAST_MESSAGE_BYTES,
    LONGEST_METRIC_BYTES,
    MOST_GROUPS,
    MOST_METRICS,
)

Vectorization = Literal["auto", "seeded", "sync", "native", "atari"]
Schedule = Literal["asynchronous", "synchronous", "deterministic"]


@dataclass(frozen=True, kw_only=True)
class EnvironmentConfig:
    """What env servers build.

    Attributes:
      id: an id that gymnasium knows by itself (ALE's too), or `package.module:factory`, which env
        servers must admit with `--allow-env`. Where importing a package registers the id, name a
        factory that imports it and returns `gymnasium.make(...)`.
      arguments: keyword arguments of the environment, as a JSON object.
      wrappers: `package.module:factory` of each, innermost first; called as `factory(env)`, it
        returns the wrapped environment.
      vectorization: `sync` steps gymnasium environments one after another, `native` uses the
        environment's own vector entry point, `atari` ALE's C++ vector environment; `auto` takes the
        fastest that there is, `seeded` the fastest that seeds every environment by itself, which
        `native` does not: what one plays then depends on those beside it.
      frames_per_step: emulator frames of one step (the frame skip); only for reporting.
      metrics: numbers to report of every episode: keys of the `info` that its last step returns,
        with a dot between the keys of nested dicts; reported as `episode/NAME`. At most 64.
      max_abs_reward: a reward beyond that, either way, is a failure of its environment, as one that
        is not finite always is: its env server builds it again, and nothing of it is learned.
      failures_per_minute: an environment that raises or returns such numbers more often is left
        out: its env server continues without it. Before that it is built again each time.
      failures_per_hour: the same, within an hour.
    """

    id: str
    arguments: str = "{}"
    wrappers: tuple[str, ...] = ()
    vectorization: Vectorization = "auto"
    frames_per_step: int = 1
    metrics: tuple[str, ...] = ()
    max_abs_reward: float = 1e6
    failures_per_minute: int = 3
    failures_per_hour: int = 10


# Of `serving`, what hosts of one run, and runs of one configuration, have each their own.
OWN_SERVING = ("bind", "token_file", "certificate", "private_key", "authority", "insecure")


@dataclass(frozen=True, kw_only=True)
class ServingConfig:
    """Central inference.

    Attributes:
      training_slots: environments whose experience is learned from.
      evaluation_slots: environments that only measure; never learned from. Training slots are
        leased first, but each env server of two environments or more has one that measures while
        such a slot is free.
      inference_devices: devices that act and do not learn; 0 lets those that learn act, too. Each
        device that acts has its part of the training slots, a thread and the newest parameters; the
        first one evaluates.
      bind: address to serve on: `host:port` or `unix:/path`; port 0 takes a free one. Empty for a
        socket that only this user can reach; the learner says where. `seedrl train` has one of its
        own.
      batch_deadline_seconds: the longest that a step waits for others to share its batch. With 128
        env servers of 50 ms a step 2 ms carried 0.89 of linear, 1 ms 0.92 and none 0.91; CartPole
        and Pong with large groups are as fast with 0.5 as with 2 (two cores).
      max_message_bytes: longest message accepted, in bytes; 0 for what the observations of all
        slots take together if a checkpoint says so, else 4 MiB.
      ready_deadline_seconds: the longest that an env server may build its environments; its slots
        are reserved meanwhile. At most 600.
      step_deadline_seconds: an env server whose group has owed a step for so long is reported as
        hung, and seedrl's own begin again without what hangs; 0 never reports one.
      token_file: file with the token that env servers must show (`--token-file` there). Needed for
        any `host:port`, and where several hosts share a run, which prove to each other that they
        have it; but where `seedrl train` makes one.
      certificate: PEM file: with it and its key the port speaks TLS. Needed for a `host:port` that
        other machines reach; `seedrl certificates` makes one.
      private_key: PEM file of the certificate's key.
      authority: PEM file: env servers must show a certificate of this authority too.
      insecure: serve on a `host:port` without these: anybody who reaches it can then feed the run,
        or take the place of one of its hosts. A warning is repeated.
    """

    training_slots: int = 32
    evaluation_slots: int = 20
    inference_devices: int = 0
    bind: str = ""
    batch_deadline_seconds: float = 0.001
    max_message_bytes: int = 0
    ready_deadline_seconds: float = 120.0
    step_deadline_seconds: float = 60.0
    token_file: str = ""
    certificate: str = ""
    private_key: str = ""
    authority: str = ""
    insecure: bool = False


@dataclass(frozen=True, kw_only=True)
class LearningConfig:
    """The learning step and its pace.

    Attributes:
      batch_sequences: sequences of one update, over all devices.
      publish_every_updates: updates between two copies of the parameters for acting; 1 in rounds.
      total_steps: training environment steps after which the run ends.
      num_devices: devices that learn; 0 takes all, but for `serving.inference_devices`.
      schedule: how acting and learning share time. `asynchronous`: both at once, whichever is ahead
        waits. `synchronous`: in rounds of one sequence of every training slot: act, by the same
        parameters throughout, then learn from all of them while acting waits: the policy lag is 0.
        For queues; while an env server is missing, all wait. `deterministic`: act on all training
        slots together, wait for each of them, and learn in between: slower, but on CPUs the seed
        and what env servers send then decide every bit. For debugging.
      record: keep what env servers send in the run's folder, to be played back by an env server
        with `--play`; only with the schedule `deterministic`.
      keep_freed_memory: on CPUs, let an update use the memory of the one before, instead of getting
        it from the kernel again. Worth it for images, whose updates need hundreds of MiB; small
        programs are slower with it, because all threads then share one arena of malloc.
      max_skipped_updates: an update whose loss, gradient, step or running moments are not finite is
        skipped, and its sequences are drawn last from then on; after this many in a row the run is
        saved and ends with exit code 2. A tenth of it in a row is worth a line.
    """

    batch_sequences: int = 32
    publish_every_updates: int = 1
    total_steps: int = 1_000_000
    num_devices: int = 0
    schedule: Schedule = "asynchronous"
    record: bool = False
    keep_freed_memory: bool = False
    max_skipped_updates: int = 1000


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """Measuring frozen parameters on the evaluation slots during training.

    A round freezes the parameters and plays `episodes`, dealt to the evaluation slots beforehand,
    to each as many as to the others but for one: short episodes are not over-represented.

    Attributes:
      interval_seconds: pause between two rounds; the next one waits for parameters that are new.
      episodes: episodes of a round.
      target_return: end the run at this mean return. A round that reaches it nominates its
        parameters, which then play `confirm_episodes` fresh episodes: if they reach it again, the
        run ends, else training continues, and a later round may nominate others. Nominations are
        not limited in number. None never ends the run by score.
      confirm_episodes: episodes of a confirmation; see target_return.
    """

    interval_seconds: float = 10.0
    episodes: int = 20
    target_return: float | None = None
    confirm_episodes: int = 100


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """Saving.

    Attributes:
      interval_seconds: between two saves; one more on SIGTERM and at the end, and where a run has
        saved nothing yet, its first one at most 30 s after the first update.
      keep: how many to keep, at least 2.
      replay: save the replay too (large).
    """

    interval_seconds: float = 300.0
    keep: int = 2
    replay: bool = False


@dataclass(frozen=True, kw_only=True)
class LoggingConfig:
    """Reporting.

    Attributes:
      interval_seconds: between two lines of metrics.
      stuck_seconds: a thread that has not finished one piece of work for so long ends the run, with
        all stacks on stderr and exit code 75. A batch, an update or an insertion is such a piece. A
        save that takes longer is reported.
      learning_curve: whether the end of a run draws learning_curve.png, which takes about a second.
      wandb: project of Weights & Biases to which the scalars go too (extra `wandb`); None for none.
      health_bind: `host:port` of /healthz, for probes, and /metrics, for Prometheus; none if it is
        empty. Who reaches it can read both and change nothing: 127.0.0.1 is meant.
    """

    interval_seconds: float = 5.0
    stuck_seconds: float = 600.0
    learning_curve: bool = True
    wandb: str | None = None
    health_bind: str = ""

    @property
    def grace_seconds(self) -> float:
        """How long a learner that is asked to end may take; it gives itself a minute less."""
        return 180.0 + self.stuck_seconds


@dataclass(frozen=True, kw_only=True)
class LaunchConfig:
    """The env servers that `seedrl train` and `seedrl launch` start.

    Attributes:
      env_servers: number of env-server processes.
      envs_per_server: environments of each; 0, and `seedrl launch` always, shares the slots out
        evenly. The flags `--env-servers` and `--envs-per-server` of `seedrl train` also set
        `serving.training_slots` where environments of each are given: all but the evaluation slots.
      groups: groups that an env server steps interleaved.
      local_link: whether steps take a socket of the kernel instead of gRPC.
    """

    env_servers: int = 2
    envs_per_server: int = 0
    groups: int = 2
    local_link: bool = True


@dataclass(frozen=True, kw_only=True)
class Config:
    """A run.

    Attributes:
      environment: what env servers build.
      agent: any frozen dataclass that offers `window` and `build(spec)` (AgentConfig).
      serving: central inference.
      replay: any frozen dataclass that offers `steps_of_page`, `check` and `build`
        (ExperienceConfig); prioritized replay unless another is given.
      learning: the learning step and its pace.
      evaluation: measuring frozen parameters during training.
      checkpoint: saving.
      logging: reporting.
      launch: the env servers that `seedrl train` and `seedrl launch` start.
      seed: of parameters, exploration, sampling and environments; at least 0.
    """

    environment: EnvironmentConfig
    agent: Any
    serving: ServingConfig = field(default_factory=ServingConfig)
    replay: Any = field(default_factory=ReplayConfig)
    learning: LearningConfig = field(default_factory=LearningConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    logging: LoggingConfig = field(default_factory=LoggingConfig)
    launch: LaunchConfig = field(default_factory=LaunchConfig)
    seed: int = 0


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


def page_steps(config: Config) -> int:
    """K, the steps of a page."""
    steps: int = config.replay.steps_of_page(config.agent.window)
    return steps


def check(config: Config) -> None:
    """Refuses a configuration that cannot work, or would wait for ever.

    Raises:
      ConfigError: the first rule that is broken, in one line that names the field.
    """
    for path, number in _numbers("", config):
        _require(math.isfinite(number), f"{path}: expected a finite number, got {number}")
    for path, limits in _RANGES.items():
        _check_range(path, _at(config, path), *limits)
    for path in _POSITIVE:
        _require(_at(config, path) > 0, f"{path}: expected more than 0, got {_at(config, path)}")
    _check_environment(config.environment)
    check_bind(config.serving)
    health = config.logging.health_bind
    fault = health and (address_fault(health) or health.startswith("unix:") * "expected host:port")
    _require(not fault, f"logging.health_bind: {fault}")
    window = _checked_window(config.agent)
    _check_replay(config, window)
    _check_schedule(config)
    _check_slots(config)


def check_bind(serving: ServingConfig) -> None:
    """Refuses an address of the wrong form, or one that others reach who need not show a token.

    Raises:
      ConfigError: `bind` is neither `host:port` nor `unix:/path`, or what it needs is not given.
    """
    bind = serving.bind
    _require(
        bool(serving.certificate) == bool(serving.private_key),
        "serving.certificate: expected serving.private_key with it, and no less",
    )
    _require(
        serving.certificate or not serving.authority,
        "serving.authority: expected serving.certificate with it",
    )
    fault = bind and address_fault(bind)
    _require(not fault, f"serving.bind: {fault}")
    if not bind or bind.startswith("unix:") or serving.insecure:
        return
    if is_local(bind):
        _require(
            serving.token_file,
            f"serving.bind: every user of this machine reaches {bind!r}; set serving.token_file, "
            "leave serving.bind out for a private socket, or set serving.insecure",
        )
        return
    _require(
        serving.certificate and serving.token_file,
        f"serving.bind: {bind!r} can be reached from other machines; expected "
        "serving.certificate, serving.private_key and serving.token_file, which `seedrl "
        "certificates` makes, or serving.insecure on a network that you trust",
    )


def check_types(path: str, value: Any) -> None:
    """Raises ConfigError for the first field, at any depth, that holds a value of another type.

    Nothing else would: dataclasses take whatever they are given, and the mistake would show as a
    traceback of the code that computes with it. The same holds for a user's own class that is no
    dataclass itself: it would lose the values of its fields without a word.

    Args:
      path: where `value` is, for the message, with a dot at its end; "" for the root.
      value: a dataclass.
    """
    _check_declared(path.removesuffix("."), type(value))
    try:
        hints = typing.get_type_hints(type(value))
    except NameError:  # names that only type checkers know, in a user's own class
        hints = {}
    for each in dataclasses.fields(value):
        item, hint = getattr(value, each.name), hints.get(each.name, Any)
        if not _fits(item, hint):
            name = hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")
            raise ConfigError(f"{path}{each.name}: expected {name}, got {_short(item)}")
        if dataclasses.is_dataclass(item) and not isinstance(item, type):
            check_types(f"{path}{each.name}.", item)


def check_fields(path: str, value: Any, **ranges: str) -> None:
    """Raises ConfigError for the first field of a wrong type, or out of its range.

    `ranges`: see `check_ranges`, which compares nothing of another type.
    """
    check_types(path, value)
    check_ranges(path, value, **ranges)


def _require(is_met: object, message: str) -> None:
    if not is_met:
        raise ConfigError(message)


def _check_range(path: str, number: float, lowest: float, highest: float) -> None:
    limits = f"at least {lowest}" if highest == math.inf else f"{lowest} to {highest}"
    _require(lowest <= number <= highest, f"{path}: expected {limits}, got {number}")


def _at(config: Config, path: str) -> Any:
    section, _, name = path.rpartition(".")
    return getattr(getattr(config, section) if section else config, name)


def _numbers(prefix: str, value: Any) -> Iterator[tuple[str, float]]:
    for each in dataclasses.fields(value):
        path, item = f"{prefix}{each.name}", getattr(value, each.name)
        if dataclasses.is_dataclass(item):
            yield from _numbers(f"{path}.", item)
        elif isinstance(item, int | float) and not isinstance(item, bool):
            yield path, item


def _check_environment(environment: EnvironmentConfig) -> None:
    _require(
        environment.id, "environment.id: expected a gymnasium id or package.module:factory, got ''"
    )
    try:
        arguments = json.loads(environment.arguments)
    except (TypeError, ValueError, RecursionError):  # not even text
        arguments = None
    _require(
        isinstance(arguments, dict),
        "environment.arguments: expected a JSON object such as "
        f"'{{\"render_mode\": null}}', got {environment.arguments!r}",
    )
    names = environment.metrics
    is_named = all(name and len(name.encode()) <= LONGEST_METRIC_BYTES for name in names)
    _require(
        is_named and len(set(names)) == len(names) <= MOST_METRICS,
        f"environment.metrics: expected at most {MOST_METRICS} different names of 1 to "
        f"{LONGEST_METRIC_BYTES} bytes, got {names!r}"[:300],
    )
    for wrapper in environment.wrappers:
        module, _, name = wrapper.partition(":")
        _require(
            name.isidentifier() and all(part.isidentifier() for part in module.split(".")),
            f"environment.wrappers: expected package.module:factory, got {wrapper!r}",
        )


def _checked_window(agent: Any) -> WindowSpec:
    """The window of an agent that may be a user's own."""
    if not dataclasses.is_dataclass(agent) or isinstance(agent, type):
        raise ConfigError(f"agent: expected an instance of a frozen dataclass, got {agent!r}")
    # Looked up without computing it: an error in a user's own property is reported below.
    has_window = inspect.getattr_static(agent, "window", None) is not None
    _require(
        has_window and callable(getattr(agent, "build", None)),
        "agent: expected a config with `window` and `build(spec)` (see "
        f"seedrl.agents.agent.AgentConfig), got a {type(agent).__name__} without",
    )
    name = f"agent.window ({type(agent).__name__})"
    with naming_own_code(name):
        window = getattr(agent, "window")  # noqa: B009
    if not isinstance(window, WindowSpec):
        raise ConfigError(f"{name}: expected a seedrl.agents.window.WindowSpec, got {window!r:.80}")
    for part, least in {"burn_in": 0, "unroll": 1, "bootstrap": 0, "stride": 1}.items():
        steps = getattr(window, part)
        # A user's own code may compute it by numpy.
        if not isinstance(steps, numbers.Integral) or steps < least:
            raise ConfigError(
                f"agent.window.{part}: expected a whole number of at least {least}, got {steps!r}"
            )
    return window


def _check_replay(config: Config, window: WindowSpec) -> None:
    replay: Any = config.replay
    is_instance = dataclasses.is_dataclass(replay) and not isinstance(replay, type)
    _require(is_instance, f"replay: expected an instance of a frozen dataclass, got {replay!r}")
    offered = ("steps_of_page", "check", "build")
    missing = [name for name in offered if not callable(getattr(replay, name, None))]
    _require(
        not missing,
        f"replay: expected a config with {', '.join(offered)} (see "
        f"seedrl.replay.experience.ExperienceConfig), got a {type(replay).__name__} without "
        f"{', '.join(missing)}",
    )
    replay.check(
        window,
        training_slots=config.serving.training_slots,
        total_steps=config.learning.total_steps,
    )


def _check_schedule(config: Config) -> None:
    learning, serving, schedule = config.learning, config.serving, config.learning.schedule
    _require(
        schedule in get_args(Schedule),
        f"learning.schedule: expected {' or '.join(get_args(Schedule))}, got {schedule!r}",
    )
    _require(
        schedule == "asynchronous" or serving.inference_devices <= 1,
        f"serving.inference_devices: expected at most 1 with learning.schedule {schedule}, where a "
        f"batch has all training slots, got {serving.inference_devices}",
    )
    if schedule == "synchronous":
        _check_rounds(config)
    if schedule != "deterministic":
        _require(
            not learning.record,
            "learning.record: only a deterministic run can be played back; set learning.schedule "
            "to deterministic too",
        )
        return
    _require(
        not serving.evaluation_slots,
        "serving.evaluation_slots: expected 0 with learning.schedule deterministic, where all "
        "slots step together and evaluation would depend on time, got "
        f"{serving.evaluation_slots}; use `seedrl evaluate`",
    )
    _require(
        config.checkpoint.replay,
        "checkpoint.replay: expected it to be set with learning.schedule deterministic, else a "
        "resumed run would differ from an uninterrupted one",
    )


def _check_rounds(config: Config) -> None:
    learning, slots = config.learning, config.serving.training_slots
    agent, replay = type(config.agent).__name__, type(config.replay).__name__
    _require(
        getattr(config.replay, "hands_out_rounds", False),
        f"learning.schedule: {agent} with {replay} cannot take synchronous, where each sequence "
        "is learned from once, right after it was acted; use asynchronous, or an agent that "
        "learns on policy with a seedrl.replay.queue.QueueConfig",
    )
    _require(
        learning.batch_sequences == slots,
        f"learning.batch_sequences: expected that of serving.training_slots ({slots}) with "
        "learning.schedule synchronous, where a round is one sequence of every slot, got "
        f"{learning.batch_sequences}",
    )
    _require(
        learning.publish_every_updates == 1,
        "learning.publish_every_updates: expected 1 with learning.schedule synchronous, where a "
        f"round acts by the newest parameters, got {learning.publish_every_updates}",
    )


def _check_slots(config: Config) -> None:
    """Rules between slots, devices, env servers and messages."""
    learning, serving, launch = config.learning, config.serving, config.launch
    num_bytes, target = serving.max_message_bytes, config.evaluation.target_return
    _require(
        not 0 < num_bytes < LEAST_MESSAGE_BYTES,
        f"serving.max_message_bytes: expected at least {LEAST_MESSAGE_BYTES}, or 0 for what "
        f"observations take, got {num_bytes}",
    )
    _require(
        not learning.num_devices or learning.batch_sequences % learning.num_devices == 0,
        f"learning.batch_sequences: expected a multiple of learning.num_devices "
        f"({learning.num_devices}), got {learning.batch_sequences}",
    )
    _require(
        target is None or serving.evaluation_slots,
        f"evaluation.target_return: {target} can only be measured with evaluation slots; set "
        "serving.evaluation_slots to at least 1, or no target",
    )
    offered = launch.env_servers * launch.envs_per_server
    slots = serving.training_slots + serving.evaluation_slots
    _require(
        not offered or offered >= slots,
        f"launch.envs_per_server: {launch.env_servers} env servers of {launch.envs_per_server} "
        f"environments offer {offered}, but serving has {slots} slots; 0 shares them out evenly",
    )


def _check_declared(path: str, kind: type) -> None:
    """Refuses a user's subclass whose fields dataclasses do not take for fields."""
    fields = {each.name for each in dataclasses.fields(kind)}
    for base in kind.__mro__:
        annotations, members = inspect.get_annotations(base), vars(base)
        declared = [name for name, hint in annotations.items() if "ClassVar" not in str(hint)]
        is_subclass = dataclasses.is_dataclass(base) and "__dataclass_fields__" not in members
        _require(
            not (declared and is_subclass),
            f"{path}: expected @dataclass(frozen=True, kw_only=True) above class {base.__name__}, "
            f"found none; without it {', '.join(declared)} would be no field of it: add that line",
        )
        for name in fields & members.keys() - annotations.keys():
            if not isinstance(members[name], property):
                raise ConfigError(
                    f"{path}.{name}: expected class {base.__name__} to give the field a type, got "
                    f"`{name} = {_short(members[name])}`, which changes nothing; write `{name}: "
                    f"{type(members[name]).__name__} = ...`"
                )
        # Classes behind the one that declares a field change nothing of it.
        fields -= annotations.keys()


def _fits(value: Any, hint: Any) -> bool:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return value in arguments
    if origin in (Union, types.UnionType):
        return any(_fits(value, argument) for argument in arguments)
    if origin is tuple and len(arguments) == 2 and arguments[1] is ...:
        return isinstance(value, tuple | list) and all(_fits(item, arguments[0]) for item in value)
    if hint in (int, float) and isinstance(value, bool):
        return False
    if hint is float:
        return isinstance(value, int | float)
    # Other types are for the class itself to check.
    return (
        hint is Any or origin is not None or not isinstance(hint, type) or isinstance(value, hint)
    )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
