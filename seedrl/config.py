"""The configuration of a run: frozen dataclasses, and the rules that their values must follow.

Reading a configuration imports neither jax nor numpy: a mistake in a command line shows at once.
"""

import dataclasses
import inspect
import json
import numbers
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from seedrl.agents.window import WindowSpec
from seedrl.errors import ConfigError
from seedrl.fields import (
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    check_fields,
    fields_of,
)
from seedrl.hints import naming_own_code
from seedrl.replay.prioritized import ReplayConfig as ReplayConfig
from seedrl.timing import (
    MOST_READY_DEADLINE_SECONDS,
    READY_DEADLINE_SECONDS,
    STEP_DEADLINE_SECONDS,
)
from seedrl.wire.contract import (
    LEAST_MESSAGE_BYTES,
    LONGEST_METRIC_BYTES,
    MOST_GROUPS,
    MOST_MESSAGE_BYTES,
    MOST_METRICS,
    address_fault,
    is_local,
)

Vectorization = Literal["auto", "seeded", "sync", "native", "atari"]
Schedule = Literal["asynchronous", "synchronous", "deterministic"]
Actions = Literal["agent", "deterministic", "stochastic"]
# After which `evaluate` and `record` cut an episode short: an Atari game's 108,000 frames.
MOST_EPISODE_STEPS = 27_000


@dataclass(frozen=True, kw_only=True)
class EnvironmentConfig:
    """The environments that env servers build.

    Attributes:
      id: registered gymnasium id, such as ALE/Pong-v5, or `package.module:factory`. Env servers
        must admit a factory with `--allow-env`. If importing a package registers the id, name a
        factory that imports it and returns `gymnasium.make(...)`.
      arguments: keyword arguments of the environment, as a JSON object.
      wrappers: `package.module:factory` of each, innermost first; called as `factory(env)`.
      vectorization: `sync` steps gymnasium environments one after another, `native` uses the
        environment's own vector entry point, `atari` ALE's C++ vector environment; `auto` takes the
        fastest available, `seeded` the fastest that seeds each environment separately (`native`
        does not: an episode then depends on the other environments). An ALE game on `sync`, as with
        wrappers of single environments, is gymnasium's: in colour, 210 x 160, with sticky actions.
      frames_per_step: emulator frames of one step (the frame skip); only for reporting.
      metrics: numbers to report of every episode: keys of the `info` of its last step, with a dot
        between the keys of nested dicts; reported as `episode/NAME`. At most 64.
      max_abs_reward: a larger or non-finite reward is a failure of its environment: it is rebuilt,
        and nothing of it is learned.
      failures_per_hour: an environment that fails more often is left out, and its env server
        continues without it. Before that it is rebuilt each time.
    """

    id: str
    arguments: str = "{}"
    wrappers: tuple[str, ...] = ()
    vectorization: Vectorization = "auto"
    frames_per_step: PositiveInt = 1
    metrics: tuple[str, ...] = ()
    max_abs_reward: PositiveFloat = 1e6
    failures_per_hour: PositiveInt = 10


# Fields of `serving` that differ between the hosts of one run, and between runs of one config.
OWN_SERVING = ("bind", "token_file", "certificate", "private_key", "authority", "insecure")


@dataclass(frozen=True, kw_only=True)
class ServingConfig:
    """Central inference.

    Attributes:
      training_slots: environments whose experience is trained on.
      evaluation_slots: environments that only evaluate. Each env server's environments are divided
        between training and evaluation slots in proportion to their numbers, with at least one
        evaluation slot while one is free.
      inference_devices: number of devices that only act; with 0 the learning devices act too. Each
        serves a part of the training slots, in its own thread; the first also evaluates.
      bind: address to serve on: `host:port` (port 0 takes a free one) or `unix:/path`. Empty: a
        socket that only this user can reach; the learner prints it.
      batch_deadline_seconds: longest time that a step waits for others to share its batch. With 128
        env servers whose steps take 50 ms, 2 ms reached 0.89 of linear scaling, 1 ms 0.92 and 0
        0.91; CartPole and Pong with large groups are equally fast with 0.5 and 2 ms (two cores).
      max_message_bytes: longest accepted message, in bytes. 0 is 4 MiB in a new run; in a resumed
        one it is the size of the observations of all slots.
      ready_deadline_seconds: longest time that an env server may take to build its environments.
        Its slots are reserved meanwhile. At most 600.
      step_deadline_seconds: an env server whose step is later than this is reported as hung; the
        step of a group may be a reset of all its environments. One in
        Python also prints all stacks and ends with 1; with `seedrl train`, `--processes` or
        `--logs` it is restarted. 0 turns this off.
      token_file: file with the token of env servers (`--token-file` there). Required for any
        `host:port`, and if several hosts share a run; `seedrl train` makes one itself.
      certificate: PEM file of the port's certificate; with it and its key the port uses TLS.
        Required for a `host:port` that other machines reach; `seedrl certificates` makes one.
      private_key: PEM file of the certificate's key.
      authority: PEM file of an authority. Env servers must then present a certificate of this
        authority too.
      insecure: serve on a `host:port` without token and TLS. Anyone who reaches the port can then
        feed the run, or replace one of its hosts. A warning is logged.
    """

    training_slots: PositiveInt = 32
    evaluation_slots: NonNegativeInt = 20
    inference_devices: NonNegativeInt = 0
    bind: str = ""
    batch_deadline_seconds: NonNegativeFloat = 0.001
    max_message_bytes: NonNegativeInt = 0
    ready_deadline_seconds: PositiveFloat = READY_DEADLINE_SECONDS
    step_deadline_seconds: NonNegativeFloat = STEP_DEADLINE_SECONDS
    token_file: str = ""
    certificate: str = ""
    private_key: str = ""
    authority: str = ""
    insecure: bool = False


@dataclass(frozen=True, kw_only=True)
class LearningConfig:
    """The learning step and its pace.

    Attributes:
      batch_sequences: sequences of one update, over all learning devices.
      publish_every_updates: updates between two copies of the parameters for acting; 1 if
        synchronous.
      lag_updates: for experiments: act with parameters this many updates older than the newest
        published ones.
      total_steps: training environment steps of the run.
      max_seconds: wall time after which the run ends, over all its sessions. None for no limit.
      num_devices: devices that learn; 0 takes all, but for `serving.inference_devices`.
      schedule: `asynchronous`: acting and learning at once, whichever is ahead waits.
        `synchronous`, for queues: act one sequence of every training slot by the same parameters,
        then learn from all of them while acting waits: the policy lag is 0, and all wait for a
        missing env server, but not for a disabled environment. `deterministic`, for debugging: act
        on all training slots in one batch, then learn, alternately. It is slower, but on CPUs a
        repeated run is equal bit by bit.
      keep_freed_memory: on CPUs, let an update reuse the memory of the one before, instead of
        returning it to the kernel. Worth it for images, whose updates need hundreds of MiB; small
        programs are slower with it, because all threads then share one arena of malloc.
      max_skipped_updates: an update whose loss, gradient, step or running statistics are not finite
        is skipped, and its sequences get the lowest priority; after this many in a row the run is
        saved and ends with exit code 2.
    """

    batch_sequences: PositiveInt = 32
    publish_every_updates: PositiveInt = 1
    lag_updates: NonNegativeInt = 0
    total_steps: PositiveInt = 1_000_000
    max_seconds: PositiveFloat | None = None
    num_devices: NonNegativeInt = 0
    schedule: Schedule = "asynchronous"
    keep_freed_memory: bool = False
    max_skipped_updates: PositiveInt = 1000


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """Measuring frozen parameters on the evaluation slots during training.

    A round freezes the parameters and plays `episodes`, assigned to the evaluation slots in advance
    and evenly: short episodes are not over-represented. Evaluation environments that are in the
    middle of an episode when it starts are reset.

    A score belongs to the training environment step at which its parameters were made. Once all
    steps are taken, the last parameters are played in a last round, while training rests; a run of
    several hosts has none.

    Attributes:
      interval_steps: training environment steps between the parameters of two rounds; 0 is a
        fiftieth of `learning.total_steps`. A round plays the first parameters after each multiple
        of it, or later ones if the last round took longer.
      interval_seconds: minimum pause after a round, in addition.
      episodes: episodes of each evaluation round.
      rollouts_per_question: of token policies, episodes with the same held-out question. Above 1 a
        round also has pass_at_k, the chance that k answers to a question contain a right one (a
        return of at least 1), for k = 1, 2, 4, ...
      actions: `agent`: as the agent wants to be measured (R2D2 and Ape-X with
        `agent.evaluation_epsilon`, the others the likeliest action); `deterministic`: the likeliest
        or best action; `stochastic`: as training slots act, with their mean exploration.
      final_seconds: longest time that the last round, and a confirmation of it, may take; 0 plays
        none.
      target_return: end the run at this mean return. A round that reaches it nominates its
        parameters, which then play `confirm_episodes` fresh episodes: if they reach it again, the
        run ends, else training continues. None never ends the run by score.
      confirm_episodes: episodes of a confirmation; see target_return.
      patience_rounds: end the run after this many rounds in a row, over all sessions, without a new
        best mean return; 0 never does.
    """

    interval_steps: NonNegativeInt = 0
    interval_seconds: NonNegativeFloat = 0.0
    episodes: PositiveInt = 20
    rollouts_per_question: PositiveInt = 1
    actions: Actions = "agent"
    final_seconds: NonNegativeFloat = 600.0  # a hung environment must not keep the run from ending
    target_return: float | None = None
    # More than of a round: of many rounds the luckiest nominates itself.
    confirm_episodes: PositiveInt = 100
    patience_rounds: NonNegativeInt = 0


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """Checkpoints.

    Attributes:
      interval_seconds: seconds between two saves. A run also saves on SIGTERM, at its end, and at
        most 30 s after the first update.
      keep: number of checkpoints to keep, at least 2.
      replay: save the replay buffer too (large). Otherwise a resumed run fills it again first.
    """

    interval_seconds: PositiveFloat = 300.0
    keep: int = 2  # if the newest is damaged, the one before it is taken
    replay: bool = False


@dataclass(frozen=True, kw_only=True)
class LoggingConfig:
    """Metrics and health.

    Attributes:
      interval_seconds: seconds between two lines of metrics.
      stuck_seconds: if a thread takes longer for a batch, an update or an insertion, the run ends
        with exit code 75 and all stacks on stderr. A slower save is only reported.
      learning_curve: draw learning_curve.png at the end of a run, which takes about a second.
      wandb: Weights & Biases project that also gets the metrics. Needs the extra `wandb`; None for
        none.
      health_bind: `host:port` of /metrics (Prometheus, probes), over HTTP without a password: use
        127.0.0.1, or a port that a network policy protects. Empty for none.
    """

    interval_seconds: PositiveFloat = 5.0
    stuck_seconds: PositiveFloat = 600.0
    learning_curve: bool = True
    wandb: str | None = None
    health_bind: str = ""

    @property
    def grace_seconds(self) -> float:
        """Longest time for a learner to end when asked to; it gives itself a minute less."""
        # A thread that is stuck ends the process only after that long.
        return 180.0 + self.stuck_seconds


@dataclass(frozen=True, kw_only=True)
class LaunchConfig:
    """The env servers that `seedrl train` and `seedrl launch` start.

    Attributes:
      env_servers: number of env-server processes.
      envs_per_server: environments of each env server; 0, or `--envs`, divides the slots evenly.
      groups: groups of environments that an env server steps alternately. A token policy has one
        for each environment.
      local_link: use a Unix socket instead of gRPC for steps on the learner's own host.
    """

    env_servers: NonNegativeInt = 2
    envs_per_server: NonNegativeInt = 0
    groups: PositiveInt = 2  # one steps while the actions of the other are computed
    local_link: bool = True


@dataclass(frozen=True, kw_only=True)
class Config:
    """A run.

    Attributes:
      environment: the environments that env servers build.
      agent: any frozen dataclass with `window` and `build(spec)` (AgentConfig).
      serving: central inference.
      replay: any frozen dataclass with `steps_of_page`, `check` and `build` (ExperienceConfig).
      learning: the learning step and its pace.
      evaluation: measuring frozen parameters during training.
      checkpoint: saving.
      logging: reporting.
      launch: the env servers that `seedrl train` and `seedrl launch` start.
      seed: seed of parameters, exploration, sampling and environments; at least 0.
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


def learning_rate_decay_steps(config: Config) -> int:
    """Environment steps after which the learning rate is 0; 0 if it never is."""
    steps: int = getattr(config.agent, "learning_rate_decay_steps", 0)  # not every agent has them
    return steps


def acts_on_tokens(config: Config) -> bool:
    """True if the agent generates tokens: its acting is another (`learner.acting.token_acting`)."""
    return bool(getattr(config.agent, "acts_on_tokens", False))


def page_steps(config: Config) -> int:
    """K, the steps of a page."""
    steps: int = config.replay.steps_of_page(config.agent.window)  # both may be a user's own
    return steps


def evaluation_steps(config: Config) -> int:
    """Training environment steps between the parameters of two rounds, at least."""
    return config.evaluation.interval_steps or max(1, config.learning.total_steps // 50)


def check(config: Config) -> None:
    """Refuses a configuration that cannot work, or would wait for ever.

    Raises ConfigError: the first broken rule, in one line that names the field.
    """
    check_fields("", config)
    window = _checked_window(config.agent)  # before the replay computes with it
    _require_offered("replay", config.replay, "steps_of_page", "check", "build")
    slots, total_steps = config.serving.training_slots, config.learning.total_steps
    config.replay.check(window, training_slots=slots, total_steps=total_steps)
    require(config, (*_own_rules(config), *_rules_between(config)))


def require(config: Config, rules: Iterable[tuple[object, str, str]]) -> None:
    """Raises ConfigError for the first rule that is not met.

    Of each rule: whether it is met, the field, and what it is expected to be.
    """
    for is_met, path, expected in rules:
        if not is_met:
            got = fields_of(config).get(path)
            raise ConfigError(f"{path}: expected {expected}, got {got!r:.200}")


def _own_rules(config: Config) -> Iterator[tuple[object, str, str]]:
    environment, serving = config.environment, config.serving
    yield 0 <= config.seed < 2**31, "seed", f"0 to {2**31 - 1}"
    yield config.checkpoint.keep >= 2, "checkpoint.keep", "at least 2"
    yield config.launch.groups <= MOST_GROUPS, "launch.groups", f"at most {MOST_GROUPS}"
    yield environment.id, "environment.id", "a gymnasium id or package.module:factory"
    arguments = """a JSON object such as '{"render_mode": null}'"""
    yield _is_object(environment.arguments), "environment.arguments", arguments
    names = environment.metrics
    is_named = all(name and len(name.encode()) <= LONGEST_METRIC_BYTES for name in names)
    yield (
        is_named and len(set(names)) == len(names) <= MOST_METRICS,
        "environment.metrics",
        f"at most {MOST_METRICS} different names of 1 to {LONGEST_METRIC_BYTES} bytes",
    )
    most = MOST_READY_DEADLINE_SECONDS
    at_most = serving.ready_deadline_seconds <= most
    yield at_most, "serving.ready_deadline_seconds", f"at most {most:g}"
    num_bytes = serving.max_message_bytes
    yield (
        num_bytes == 0 or LEAST_MESSAGE_BYTES <= num_bytes <= MOST_MESSAGE_BYTES,
        "serving.max_message_bytes",
        f"{LEAST_MESSAGE_BYTES} to {MOST_MESSAGE_BYTES}, or 0 for the size of the observations",
    )
    for path, address in (
        ("serving.bind", serving.bind),
        ("logging.health_bind", config.logging.health_bind),
    ):
        fault = address_fault(address) if address else None
        yield fault is None, path, fault or ""
    is_socket = config.logging.health_bind.startswith("unix:")
    yield not is_socket, "logging.health_bind", "host:port"


def _rules_between(config: Config) -> Iterator[tuple[object, str, str]]:
    # Each names the field to change.
    learning, serving, launch = config.learning, config.serving, config.launch
    has_tls, bind = serving.certificate and serving.private_key, serving.bind
    is_paired = bool(serving.certificate) == bool(serving.private_key)
    yield is_paired, "serving.certificate", "it with serving.private_key, or neither"
    yield has_tls or not serving.authority, "serving.authority", "serving.certificate with it"
    # Only this user reaches the default socket; a path's folder decides who reaches it.
    is_private = not bind or bind.startswith("unix:") or serving.insecure
    yield (
        is_private or (serving.token_file and (has_tls or is_local(bind))),
        "serving.bind",
        "serving.token_file with it, and beyond this machine also serving.certificate and "
        "serving.private_key (made by `seedrl certificates`); or serving.insecure",
    )
    yield (
        not learning.num_devices or learning.batch_sequences % learning.num_devices == 0,
        "learning.batch_sequences",
        f"a multiple of learning.num_devices ({learning.num_devices})",
    )
    target, slots = config.evaluation.target_return, serving.training_slots
    measured = "none without serving.evaluation_slots, which measure it"
    yield target is None or serving.evaluation_slots, "evaluation.target_return", measured
    patience = config.evaluation.patience_rounds
    counted = "0 without serving.evaluation_slots, which play the rounds"
    yield not patience or serving.evaluation_slots, "evaluation.patience_rounds", counted
    can_differ = acts_on_tokens(config) and config.evaluation.actions == "stochastic"
    same = "1 unless a token policy is evaluated with evaluation.actions stochastic"
    is_one = config.evaluation.rollouts_per_question == 1
    yield is_one or can_differ, "evaluation.rollouts_per_question", same
    offered = launch.env_servers * launch.envs_per_server
    num_slots = slots + serving.evaluation_slots
    shared = f"environments for all {num_slots} slots; 0 shares them out evenly"
    yield not offered or offered >= num_slots, "launch.envs_per_server", shared
    schedule = learning.schedule
    # The other schedules act on all training slots in one batch, which one device computes.
    few = schedule == "asynchronous" or serving.inference_devices <= 1
    one = f"at most 1 with learning.schedule {schedule}, where a batch has all training slots"
    yield few, "serving.inference_devices", one
    if schedule == "synchronous":
        hands_out = getattr(config.replay, "hands_out_rounds", False)
        yield (
            hands_out,
            "learning.schedule",
            f"another one for {type(config.agent).__name__}: with it a sequence is learned from "
            "once, so that the replay must be a QueueConfig",
        )
        round_size = f"serving.training_slots ({slots}): a round has one sequence of every slot"
        yield learning.batch_sequences == slots, "learning.batch_sequences", round_size
        newest = "1 with learning.schedule synchronous: a round acts by the newest parameters"
        yield learning.publish_every_updates == 1, "learning.publish_every_updates", newest
    if schedule == "deterministic":
        none = "0 with learning.schedule deterministic, because it depends on time"
        yield not serving.evaluation_slots, "serving.evaluation_slots", none


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _require_offered(path: str, value: Any, *names: str) -> None:
    # Agent and replay may be a user's own.
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        raise ConfigError(f"{path}: expected an instance of a frozen dataclass, got {value!r:.80}")
    # Looked up without computing it: a property may be a user's own and raise.
    missing = [name for name in names if inspect.getattr_static(value, name, None) is None]
    if missing:
        raise ConfigError(
            f"{path}: expected a config with {', '.join(names)}, got a {type(value).__name__} "
            f"without {', '.join(missing)}"
        )


def _checked_window(agent: Any) -> WindowSpec:
    _require_offered("agent", agent, "window", "build")
    name = f"agent.window ({type(agent).__name__})"
    with naming_own_code(name):
        window = agent.window
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
