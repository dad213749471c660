"""The configuration of a run: frozen dataclasses, checked where they are built."""

from dataclasses import dataclass, field
from typing import Any, Literal

from seedrl.replay.prioritized import ReplayConfig as ReplayConfig

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
        saved and ends with exit code 7. A tenth of it in a row is worth a line.
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
      group_threads: whether each of them is built and stepped in a thread of its own: then a slow
        environment holds back its own group alone, and environments that sleep or wait do so side
        by side. For environments that bear several threads; those that compute in Python for
        microseconds get slower by it.
      local_link: whether steps take a socket of the kernel instead of gRPC.
      max_memory_mib: resident memory of an env server in MiB beyond which it is restarted; 0 for
        three quarters of the machine's memory.
    """

    env_servers: int = 2
    envs_per_server: int = 0
    groups: int = 2
    group_threads: bool = False
    local_link: bool = True
    max_memory_mib: int = 0


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
