"""From a configuration, a spec and a checkpoint to what a run consists of.

Read from top to bottom: which devices do what (`plan_geometry`), what meets env servers
(`build_hub`), and everything that needs the environment's spec (`build`). Nothing here runs.
"""

import math
import os
import secrets
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from learner.acting.actor import over_slots
from learner.acting.evaluator import Evaluator, evaluation_exploration
from learner.acting.kind import ActingKind, on_steps
from learner.acting.loop import Acting, Totals
from learner.checkpoints.restoring import (
    Initial,
    naming_fields,
    other_experience,
    take_over,
    with_own_rewards,
)
from learner.learning.device_mapping import (
    map_programs,
    replicate,
    require_state_memory,
    stack_shards,
)
from learner.learning.learn_step import LearnerState, LearnPrograms, build_learn_programs
from learner.learning.loop import Learning
from learner.learning.page_routing import ShardedReplay
from learner.multihost.agreement import PAUSE_SECONDS, AgreedLimiter, Hosts
from learner.multihost.joining import devices_of, require_as_many
from learner.multihost.topology import ALONE, Topology
from learner.report.env_servers import EnvServerRegistry
from learner.report.events import NO_SINK, EventSink
from learner.report.metrics import Metrics
from learner.runtime.channel import (
    MOST_BYTES,
    ActorLearnerChannel,
    PageQueue,
    RateLimiter,
    VersionedParams,
)
from learner.serving.core import Serving
from learner.serving.hub import Hub
from learner.serving.leases import SlotRange, SlotTable, ranges_of, session_seed
from seedrl.agents.agent import Agent
from seedrl.agents.check import build_agent
from seedrl.checkpoints import Checkpoint, saved_spec
from seedrl.config import (
    Config,
    acts_on_tokens,
    evaluation_steps,
    learning_rate_decay_steps,
)
from seedrl.errors import CheckpointError, ConfigError
from seedrl.replay.experience import Experience, Scale
from seedrl.specs import EnvSpec
from seedrl.stored_arrays import read_tree
from seedrl.timing import POLL_SECONDS
from seedrl.types import Array, Page, Tree


class Geometry(NamedTuple):
    """Sizes of a run, of which this host has a part."""

    devices: Sequence[jax.Device]  # of this host, that learn
    inference: Sequence[jax.Device]  # of this host, that act: the same ones, or others
    slot_ranges: Sequence[SlotRange]  # which of these acts for which slots of this host
    kind: ActingKind
    batch_per_device: int  # B/n, sequences of an update on each device
    everywhere: Sequence[jax.Device]  # the n devices of all hosts that learn
    topology: Topology  # this host among them
    # Of this host: training slot s of the run is slot s // H of host s modulo H, so that each host
    # explores to all degrees. Of several hosts the first evaluates.
    training_slots: int
    evaluation_slots: int

    @property
    def page_steps(self) -> int:
        """K, time steps of a page."""
        return self.kind.page_steps

    def __str__(self) -> str:
        """The devices, for a person."""
        devices = f"{len(self.devices)} x {self.devices[0].device_kind}"
        if self.topology.process_count > 1:
            devices += f" of {len(self.everywhere)}, {self.topology.name}"
        if self.inference[0] in self.devices:
            return devices
        return f"{devices} to learn, {len(self.inference)} to act"


def plan_geometry(config: Config, topology: Topology = ALONE) -> Geometry:
    """Derives the sizes. Raises ConfigError if they do not fit the devices of this run."""
    # Then each host learns on all of its devices, and one program needs as many of each.
    if not config.learning.num_devices:
        require_as_many(topology)
    devices, inference = split_devices(config, jax.local_devices(), topology)
    everywhere = devices if topology.process_count == 1 else devices_of(topology, len(devices))
    batch, slots = config.learning.batch_sequences, config.serving.training_slots
    # One program for all devices: each has the same number of sequences.
    if batch % len(everywhere):
        raise ConfigError(
            f"learning.batch_sequences: expected a multiple of the {len(everywhere)} learning "
            f"devices, got {batch}; change it or set learning.num_devices"
        )
    # A device without a slot would have an empty shard for ever.
    if slots < len(everywhere):
        raise ConfigError(
            f"serving.training_slots: expected at least one for each of the {len(everywhere)} "
            f"learning devices, got {slots}; raise it or set learning.num_devices"
        )
    kind = _kind_of(config)
    memory = _device_bytes(inference)
    kind.check(len(everywhere), len(inference), topology.process_count, memory)
    num_inference = len(inference) * topology.process_count
    if slots < num_inference:
        raise ConfigError(
            f"serving.training_slots: expected at least one for each of the {num_inference} "
            f"inference devices, got {slots}; raise it or lower serving.inference_devices"
        )
    training = topology.part(slots)
    evaluation = config.serving.evaluation_slots if topology.is_first else 0
    return Geometry(
        devices=devices,
        inference=inference,
        slot_ranges=ranges_of(training, evaluation, len(inference)),
        kind=kind,
        batch_per_device=batch // len(everywhere),
        everywhere=everywhere,
        topology=topology,
        training_slots=training,
        evaluation_slots=evaluation,
    )


def _kind_of(config: Config) -> ActingKind:
    if acts_on_tokens(config):
        # Imported here: other runs need nothing of it.
        from learner.acting.token_acting import on_tokens

        return on_tokens(config)
    return on_steps(config)


def split_devices(
    config: Config, local: Sequence[jax.Device], topology: Topology = ALONE
) -> tuple[Sequence[jax.Device], Sequence[jax.Device]]:
    """The devices of this host that learn, and those that act.

    Raises ConfigError if there are too few, or the hosts cannot have as many each.
    """
    only_act = _part_of_host(
        "serving.inference_devices", config.serving.inference_devices, topology
    )
    num_devices = _part_of_host("learning.num_devices", config.learning.num_devices, topology)
    num_devices = num_devices or len(local) - only_act
    if num_devices + only_act > len(local) or num_devices < 1:
        others = f" and {only_act} that only act (serving.inference_devices)" if only_act else ""
        raise ConfigError(
            f"learning.num_devices: expected at most {len(local)}, the devices of this machine, "
            f"got {num_devices}{others}"
        )
    learning = local[:num_devices]
    if only_act:
        return learning, local[num_devices : num_devices + only_act]
    # Unless both run at once a batch has all slots: one device computes it.
    return learning, learning if config.learning.schedule == "asynchronous" else learning[:1]


def _part_of_host(name: str, number: int, topology: Topology) -> int:
    if number % topology.process_count:
        raise ConfigError(
            f"{name}: expected a multiple of {topology.process_count}, as many for each host "
            f"(--process-count), got {number}"
        )
    return number // topology.process_count


def scale(config: Config, geometry: Geometry) -> Scale:
    """What a replay has to fit."""
    return Scale(
        num_devices=len(geometry.everywhere),
        batch_per_device=geometry.batch_per_device,
        training_slots=config.serving.training_slots,
        device_bytes=_device_bytes(geometry.devices),
        device_name=geometry.devices[0].device_kind,
        publish_every_updates=config.learning.publish_every_updates + config.learning.lag_updates,
        process_count=geometry.topology.process_count,
        in_rounds=config.learning.schedule == "synchronous",
    )


def _device_bytes(devices: Sequence[jax.Device]) -> int:
    # Memory of each. CPUs share the machine's.
    limit = (devices[0].memory_stats() or {}).get("bytes_limit")
    if limit is None:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        limit = memory // len(devices)
    return int(limit)


class StartFrom(NamedTuple):
    """What a session starts from; nothing for a new run."""

    checkpoint: Checkpoint | None = None  # the run's own, which it resumes from
    initial: Initial | None = None  # another run's parameters
    is_partial: bool = False  # only those that fit


def build_hub(
    config: Config,
    geometry: Geometry,
    *,
    session_number: int,
    checkpoint: Checkpoint | None = None,
    events: EventSink = NO_SINK,
) -> Hub:
    """Where env servers and acting meet on this host.

    `session_number`: of this host's sessions in this run.
    """
    host = "" if geometry.topology.is_first else f" host {geometry.topology.process_index}"
    slots = SlotTable(
        training=geometry.training_slots,
        evaluation=geometry.evaluation_slots,
        # Nothing that a killed session has not saved may decide on seeds: its own would recur.
        seed=session_seed(config.seed, f"session {session_number}{host}"),
        num_devices=len(geometry.inference),
    )
    rule, evaluation_rule = geometry.kind.rules
    serving = Serving(
        slots,
        page_steps=geometry.page_steps,
        rule=rule,
        evaluation_rule=evaluation_rule,
    )
    spec = None if checkpoint is None else saved_spec(checkpoint.meta["env_spec"])
    registry = EnvServerRegistry(
        events,
        training_slots=geometry.training_slots,
        evaluation_slots=geometry.evaluation_slots,
        step_deadline_seconds=config.serving.step_deadline_seconds,
    )
    return Hub(serving, config.environment, spec=spec, registry=registry)


class System(NamedTuple):
    """What a run consists of, once the environment's spec is known. Built here, run by a schedule.

    Acting and learning each belong to one thread, which with `Alternating` is the same.
    """

    acting: Sequence[Acting]  # one for each inference device; the first evaluates
    learning: Learning  # owns learner state and replay
    # What both of them touch: pages one way, parameters the other.
    channel: ActorLearnerChannel
    # What it was built for.
    agent: Agent
    spec: EnvSpec
    geometry: Geometry
    scale: Scale
    page: Page  # shapes and dtypes
    replay_bytes: int  # of one device
    acting_bytes: int  # that acting may take of a device that learns
    hosts: Hosts  # that share the run
    taken: str = ""  # what was not taken over: parameters of another run, or a saved replay


def build(
    config: Config,
    geometry: Geometry,
    *,
    hub: Hub,
    spec: EnvSpec,
    metrics: Metrics,
    start: StartFrom = StartFrom(),  # noqa: B008 - immutable
    hosts: Hosts | None = None,
) -> System:
    """Builds acting, learning and replay; each continues from what a checkpoint holds of it.

    Raises ConfigError if the devices cannot hold the replay or the initial parameters do not fit,
    CheckpointError if the checkpoint does not fit the config.
    """
    hosts = hosts or Hosts()
    agent = build_agent(config.agent, spec)
    page = geometry.kind.page(agent, spec)
    sizes = scale(config, geometry)
    experience: Experience = config.replay.build(
        agent.window, page=page, initial_priorities=agent.initial_priorities, scale=sizes
    )
    shards, dropped = _replay(config, geometry, experience, page, start.checkpoint)
    programs = build_learn_programs(
        agent, experience.memory, batch_per_device=geometry.batch_per_device
    )
    # Two loops never receive the same key.
    acting_key, learning_key = jax.random.split(jax.random.PRNGKey(config.seed))
    if not geometry.topology.is_first:
        # All learn with one key, and none explores as another does.
        acting_key = jax.random.fold_in(acting_key, geometry.topology.process_index)
    state, taken = _learner_state(config, agent, spec, programs, learning_key, sizes, start)
    # Copies, which belong to the learn step alone.
    state = LearnerState(*replicate(state, geometry.devices, geometry.everywhere))
    mapped = map_programs(programs, geometry.devices, geometry.inference, geometry.everywhere)
    limiter = (
        RateLimiter(experience.limiter)
        if hosts.is_alone
        else AgreedLimiter(experience.limiter, hosts)
    )
    if start.checkpoint is not None:
        with naming_fields(start.checkpoint, config, "replay"):
            # Else the replay ratio would be of this session only.
            limiter.restore(start.checkpoint.meta["limiter"])
    # Acting starts with what learning starts with: the policy lag begins at 0.
    published = mapped.publish(jax.tree.map(mapped.local_part, state.params))
    steps = 0 if start.checkpoint is None else int(start.checkpoint.meta["env_steps"])
    channel = ActorLearnerChannel(
        limiter,
        [VersionedParams(params, int(state.updates), steps) for params in published],
        wake_acting=hub.wake,
        clock=hub.clock,
        # One thread that acts and learns would wait for itself. Each turn empties the queue.
        pages=PageQueue(MOST_BYTES if config.learning.schedule == "asynchronous" else math.inf),
    )
    acting = _acting(
        config, geometry, agent, spec, page, hub, channel, metrics, acting_key, start.checkpoint
    )
    # Afterwards: acting is built with the channel, and counts what the channel asks for.
    channel.count_steps = lambda: acting[0].training_steps
    learning = Learning(
        programs=mapped,
        state=state,
        replay=shards,
        channel=channel,
        metrics=metrics,
        publish_every_updates=config.learning.publish_every_updates,
        lag_updates=config.learning.lag_updates,
        poll_seconds=_learning_waits(config, hosts),
    )
    acting[0].follow(learning)
    _gauge_constants(config, metrics)
    if isinstance(limiter, AgreedLimiter):
        _share(config, hosts, limiter, acting[0].totals, learning, metrics, earlier_steps=steps)
    replay_bytes = sum(leaf.nbytes for leaf in jax.tree.leaves(shards.memory))
    return System(
        acting=acting,
        learning=learning,
        channel=channel,
        agent=agent,
        spec=spec,
        geometry=geometry,
        scale=sizes,
        page=page,
        replay_bytes=replay_bytes // len(geometry.devices),
        acting_bytes=_acting_bytes(config, geometry, published[0], acting),
        hosts=hosts,
        taken="; ".join(filter(None, (taken, dropped))),
    )


def _acting_bytes(
    config: Config, geometry: Geometry, actor_params: Tree, acting: Sequence[Acting]
) -> int:
    # Bytes of a device that learns: what acting keeps of its slots, pages on their way to replay,
    # and copies of parameters.
    copies = 1  # that an update under way will publish
    others = 0
    if set(geometry.inference) & set(geometry.devices):  # others hold theirs elsewhere
        others = max(each.state_bytes for each in acting) + MOST_BYTES
        # Those that act, and newer ones that acting does not use yet.
        copies += 1 + config.learning.lag_updates // config.learning.publish_every_updates
        # Those that a round of evaluation plays, and the best ones.
        copies += 2 * (geometry.evaluation_slots > 0)
    return others + copies * sum(leaf.nbytes for leaf in jax.tree.leaves(actor_params))


def _learning_waits(config: Config, hosts: Hosts) -> float:
    # Longest wait of learning: for pages until there are enough of them, then for the limiter.
    if config.learning.schedule != "asynchronous":
        return 0.0  # in one thread acting would wait for learning
    return POLL_SECONDS if hosts.is_alone else PAUSE_SECONDS


def _learner_state(
    config: Config,
    agent: Agent,
    spec: EnvSpec,
    programs: LearnPrograms,
    key: Array,
    sizes: Scale,
    start: StartFrom,
) -> tuple[LearnerState, str]:
    """Fresh, the checkpoint's, or fresh but for the parameters of another run; and what differs."""
    init = jax.jit(programs.init).lower(key)
    # Of an absurd observation it could take all memory, and the kernel would end this process.
    require_state_memory(init.out_info, sizes)
    if start.checkpoint is not None:
        # `require_fit` has compared it with this configuration.
        state = LearnerState(**read_tree(start.checkpoint.path, init.out_info._asdict()))
        params, text = with_own_rewards(start.checkpoint, state.params, config)
        return state._replace(params=params), text
    state = init.compile()(key)
    if start.initial is None:
        return state, ""
    params, taken = take_over(
        start.initial, state.params, config, spec, is_partial=start.is_partial
    )
    # Optimizer and target network begin with these parameters.
    return LearnerState.of(jax.jit(agent.init_state)(params), state.key), taken


def resumed_key(key: Array, schedule: str, version: int) -> Array:
    """The acting key of a session that resumed at `version`; consumes the run's.

    Neither the checkpoint's session nor another one that resumed from it has the same: they would
    explore alike. In deterministic mode the same bits follow from the same checkpoint.
    """
    # Random bits of the system: two sessions may resume from the same checkpoint.
    salt = version if schedule == "deterministic" else secrets.randbits(32)
    return jax.random.fold_in(key, salt)


def _acting(
    config: Config,
    geometry: Geometry,
    agent: Agent,
    spec: EnvSpec,
    page: Page,
    hub: Hub,
    channel: ActorLearnerChannel,
    metrics: Metrics,
    key: Array,
    checkpoint: Checkpoint | None,
) -> list[Acting]:
    """One for each inference device, from the checkpoint's step on."""
    if checkpoint is not None:
        key = resumed_key(key, config.learning.schedule, channel.params[0].version)
    exploration = _exploration(config, geometry, agent)
    totals = Totals(
        config.learning.total_steps,
        earlier_steps=channel.params[0].env_steps,
        num_devices=len(geometry.inference),
    )
    return [
        geometry.kind.acting(
            hub=hub,
            # All have the same key: no two batches have the same number.
            actor=geometry.kind.actor(
                agent,
                spec,
                page,
                slot_ranges=[each for each in geometry.slot_ranges if each.device == number],
                exploration=exploration,
                decay_steps=agent.exploration_decay_steps,
                key=key,
                device=device,
            ),
            channel=channel,
            evaluator=Evaluator(
                config.evaluation, hub.clock(), interval_steps=evaluation_steps(config)
            ),
            metrics=metrics,
            totals=totals,
            frames_per_step=config.environment.frames_per_step,
        )
        for number, device in enumerate(geometry.inference)
    ]


def _exploration(config: Config, geometry: Geometry, agent: Agent) -> np.ndarray:
    """How much each slot of this host explores, `[S] float32`: spread over those of all hosts."""
    rungs = np.asarray(agent.exploration(config.serving.training_slots), np.float32)
    measured = evaluation_exploration(agent, config.evaluation.actions, len(rungs))
    evaluation = np.full(geometry.evaluation_slots, measured, np.float32)
    return np.concatenate([geometry.topology.own(over_slots(rungs)), evaluation])


def _gauge_constants(config: Config, metrics: Metrics) -> None:
    """Numbers of the agent that no update changes, for whoever compares runs."""
    learning_rate = getattr(config.agent, "learning_rate", None)
    # If it decays, each update reports the rate that it used.
    decays = bool(learning_rate_decay_steps(config))
    if isinstance(learning_rate, float) and not decays:
        metrics.gauge("learning_rate", learning_rate)


def _share(
    config: Config,
    hosts: Hosts,
    limiter: AgreedLimiter,
    totals: Totals,
    learning: Learning,
    metrics: Metrics,
    *,
    earlier_steps: int,
) -> None:
    """Lets this host count what the others act, and take snapshots where all do."""
    totals.steps.append(0)  # of the other hosts; the learning thread adds to it
    frames_per_step = config.environment.frames_per_step

    def on_others(steps: int) -> None:
        totals.steps[-1] += steps
        if steps:
            metrics.count("env_steps", steps)
            metrics.count("frames", steps * frames_per_step)

    limiter.on_others = on_others
    learning.count_steps = lambda: earlier_steps + limiter.agreed_steps
    # None of several hosts saves its replay.
    hosts.take = lambda: learning.snapshot(with_replay=False)


def _replay(
    config: Config,
    geometry: Geometry,
    experience: Experience,
    page: Page,
    checkpoint: Checkpoint | None,
) -> tuple[ShardedReplay, str]:
    """The replay on this host's devices and its indices: empty, or the checkpoint's if it has one.

    And a line about a saved replay that is dropped, because its experience means something else.
    The memory is a device array with one owner, the learning thread, which donates it to every
    insertion and update.
    """
    memory = stack_shards(lambda: experience.memory.init(page), geometry.devices)
    indices = [experience.index() for _ in geometry.devices]
    ranges = [each for each in geometry.slot_ranges if each.role == "training"]
    page_rows = {rows for each in ranges for rows in geometry.kind.page_rows(each.size)}
    shards = ShardedReplay(
        experience,
        memory,
        indices,
        geometry.page_steps,
        most_pages=max(page_rows),
        page_rows=sorted(page_rows),
        # Only pages that arrive mixed are picked apart, which takes programs of its own.
        is_mixed=any(
            len(set(experience.shard_of(each.slots, 0, len(indices)))) > 1 for each in ranges
        ),
        starts_in_page=config.agent.window.starts_in_page(geometry.page_steps),
    )
    # Several hosts fill theirs again: none could take over the shards of another one.
    is_alone = geometry.topology.process_count == 1
    if checkpoint is None or "replay_indices" not in checkpoint.meta or not is_alone:
        return shards, ""
    # A queue has room for some updates, and for what all slots may send.
    sizes = "learning.num_devices", "learning.batch_sequences", "serving.training_slots"
    with naming_fields(checkpoint, config, "agent", "replay", *sizes):
        states = checkpoint.meta["replay_indices"]
        # By default the machine decides how many devices learn.
        if len(states) != len(indices):
            raise CheckpointError(
                f"{checkpoint.path}: expected a replay of {len(indices)} learning devices, it was "
                f"saved from {len(states)}; set learning.num_devices to {len(states)}, or start a "
                "new run with --init-from"
            )
        for index, state in zip(indices, states, strict=True):
            index.restore(state)
        if fields := other_experience(checkpoint, config):
            number = sum(index.num_sequences for index in indices)
            text = f"dropped {number:,} sequences of the saved replay, which are of {fields}"
            return shards._replace(indices=[experience.index() for _ in indices]), text
        saved = read_tree(checkpoint.path, {"replay": memory})["replay"]
    return shards._replace(memory=jax.tree.map(_in_place_of, saved, memory)), ""


def _in_place_of(saved: np.ndarray, empty: jax.Array) -> jax.Array:
    """The saved leaf where the empty one was: a device need not have memory for both."""
    sharding = empty.sharding
    empty.delete()
    return jax.device_put(saved, sharding)
