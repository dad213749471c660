"""The parts of a session: everything that is built once the environment's spec is known."""

import secrets
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import jax
import numpy as np

from learner.acting.act_step import example_page
from learner.acting.actor import build_actor, over_slots
from learner.acting.evaluator import Evaluator
from learner.acting.loop import Acting
from learner.acting.totals import Totals
from learner.hosts.agenda import Hosts, alone
from learner.learning.allocation import require_state_memory, require_update_memory
from learner.learning.device_mapping import MappedPrograms, map_programs, replicate
from learner.learning.learn_step import LearnerState, LearnPrograms, build_learn_programs
from learner.learning.loop import POLL_SECONDS, Learning
from learner.learning.page_routing import ShardedReplay
from learner.reporting.metrics import Metrics
from learner.saving.restoring import (
    restore_acting,
    restore_params,
    restore_state,
    streams_can_resume,
)
from learner.serving.hub import Hub
from learner.session.geometry import Geometry, scale
from learner.session.sharing.part import limiter_of, take_part
from learner.session.sharing.replay import sharded_replay
from learner.threads.exchange import MOST_BYTES, Exchange, FrozenParams, open_exchange
from learner.threads.rate_limiter import SharedLimiter
from seedrl.agents.agent import Agent
from seedrl.agents.check import build_agent
from seedrl.checkpoints import Checkpoint
from seedrl.config import Config
from seedrl.replay.experience import Experience, Scale
from seedrl.specs import EnvSpec
from seedrl.types import Array, Page


class Parts(NamedTuple):
    """What a session runs.

    Attributes:
      acting, learning: what threads do, of each inference device and of learning.
      exchange: what crosses between the two.
      page: a page's shapes and dtypes.
      page_rows: the numbers of pages that may be sent at once, ascending.
      replay_bytes: size of one device's replay.
      agent: that of the run.
      scale: of the devices.
      pages_bytes: what pages on their way to replay may take of a device that learns.
      hosts: that share the run.
    """

    acting: Sequence[Acting]
    learning: Learning
    exchange: Exchange
    page: Page
    page_rows: tuple[int, ...]
    replay_bytes: int
    agent: Agent
    scale: Scale
    pages_bytes: int
    hosts: Hosts


class Origin(NamedTuple):
    """What a session begins with.

    Attributes:
      checkpoint: the run's, which it resumes from; None if there is none.
      initial: another run's, whose parameters it takes over then; None if it takes none.
    """

    checkpoint: Checkpoint | None = None
    initial: Checkpoint | None = None


NEW = Origin()


class _Given(NamedTuple):
    """What the parts are built from, and what all of them are built for."""

    config: Config
    geometry: Geometry
    hub: Hub
    spec: EnvSpec
    metrics: Metrics
    checkpoint: Checkpoint | None
    initial: Checkpoint | None
    agent: Agent
    page: Page
    hosts: Hosts


def assemble(
    config: Config,
    geometry: Geometry,
    *,
    hub: Hub,
    spec: EnvSpec,
    metrics: Metrics,
    origin: Origin = NEW,
    hosts: Hosts | None = None,
) -> Parts:
    """Builds the parts; each continues from what a checkpoint holds of it.

    `hosts`: that share the run; None if there is no other.

    Raises ConfigError if the devices cannot hold the replay or the initial parameters do not fit,
    CheckpointError if the checkpoint does not fit the config.
    """
    agent = build_agent(config.agent, spec)
    page = example_page(agent, spec, geometry.page_steps)
    checkpoint, initial = origin
    hosts = hosts or alone()
    given = _Given(config, geometry, hub, spec, metrics, checkpoint, initial, agent, page, hosts)
    of_devices = scale(config, geometry)
    experience: Experience = config.replay.build(
        agent.window, page=page, initial_priorities=agent.initial_priorities, scale=of_devices
    )
    shards = sharded_replay(config, geometry, experience, page, checkpoint, rungs=_rungs(config))
    learn_programs = build_learn_programs(
        agent, experience.memory, batch_per_device=geometry.batch_per_device
    )
    acting_key, learning_key = jax.random.split(jax.random.PRNGKey(config.seed))
    if not geometry.place.is_first:
        # All learn with one key, and none explores as another does.
        acting_key = jax.random.fold_in(acting_key, geometry.place.host_index)
    state = _learner_state(given, learn_programs, learning_key, of_devices)
    mapped = map_programs(learn_programs, geometry.devices, geometry.inference, geometry.everywhere)
    exchange = _exchange(given, limiter_of(hosts, experience.limiter), state, mapped)
    acting = _acting(given, exchange, acting_key, version=int(state.updates))
    learning = _learning(given, mapped, state, shards, exchange)
    _gauge_constants(given)
    replay_bytes = sum(leaf.nbytes for leaf in jax.tree.leaves(shards.memory))
    per_device, rows = replay_bytes // len(geometry.devices), tuple(shards.page_rows)
    take_part(hosts, config, acting[0].totals, learning, exchange.limiter, metrics)
    # Devices that only act hold them elsewhere.
    pages_bytes = MOST_BYTES if set(geometry.inference) & set(geometry.devices) else 0
    return Parts(
        acting,
        learning,
        exchange,
        page,
        rows,
        per_device,
        agent,
        of_devices,
        pages_bytes,
        hosts,
    )


def _gauge_constants(given: _Given) -> None:
    """Numbers of the agent that no update changes, for whoever compares runs."""
    exploration = given.agent.exploration(given.config.serving.training_slots)
    given.metrics.gauge("exploration_mean", float(np.mean(exploration)))
    agent = given.config.agent
    learning_rate = getattr(agent, "learning_rate", None)
    # Of one that decays each update says what it took.
    decays = bool(getattr(agent, "learning_rate_decay_updates", 0))
    if isinstance(learning_rate, float) and not decays:
        given.metrics.gauge("learning_rate", learning_rate)


def compile_all(parts: Parts) -> None:
    """Compiles what acting and learning run, at the same time.

    Raises ConfigError if a device has too little memory for an update, before the first one runs.
    """
    with ThreadPoolExecutor(2, thread_name_prefix="compile") as pool:
        for compiled in (
            *(pool.submit(acting.warm_up) for acting in parts.acting),
            pool.submit(_warm_up_learning, parts),
        ):
            compiled.result()


def _warm_up_learning(parts: Parts) -> None:
    require_update_memory(parts.learning.compile_update(), parts.scale, parts.pages_bytes)
    parts.learning.warm_up(parts.page, parts.page_rows)


def _learner_state(
    given: _Given, programs: LearnPrograms, key: Array, of_devices: Scale
) -> LearnerState:
    """On all devices: fresh, or the checkpoint's. The learn step consumes it."""
    init = jax.jit(programs.init).lower(key)
    # Of an absurd observation it could take all memory, and the kernel would end this process.
    require_state_memory(init.out_info, of_devices)
    state = init.compile()(key)
    if given.checkpoint is not None:
        state = restore_state(given.checkpoint, state, given.config)
    elif given.initial is not None:
        params = restore_params(given.initial, state.params, given.config)
        state = LearnerState._make((*jax.jit(given.agent.init_state)(params), state.key))
    # Copies, which belong to the learn step alone.
    geometry = given.geometry
    replicated: LearnerState = replicate(
        LearnerState(*state), geometry.devices, geometry.everywhere
    )
    return replicated


def _exchange(
    given: _Given, limiter: SharedLimiter, state: LearnerState, programs: MappedPrograms
) -> Exchange:
    """With the parameters of `state` to act with, and the limiter where the checkpoint left it."""
    if given.checkpoint is not None:
        limiter.restore(given.checkpoint.meta["limiter"])
    first = programs.publish(jax.tree.map(programs.local_part, state.params))
    return open_exchange(
        limiter,
        [FrozenParams(params, int(state.updates)) for params in first],
        wake_acting=given.hub.wake,
        clock=given.hub.clock,
    )


def resumed_key(key: Array, schedule: str, version: int) -> Array:
    """The acting key of a session that resumed at `version`; consumes the run's.

    Neither the checkpoint's session nor another one that resumed from it has the same: they would
    explore alike. In lock step the same bits follow from the same checkpoint.
    """
    salt = version if schedule == "deterministic" else secrets.randbits(32)
    return jax.random.fold_in(key, salt)


def _acting(given: _Given, exchange: Exchange, key: Array, *, version: int) -> list[Acting]:
    """Acting, from the checkpoint's step on; `version`: of the parameters to begin with."""
    config, checkpoint = given.config, given.checkpoint
    if checkpoint is not None:
        key = resumed_key(key, config.learning.schedule, version)
    geometry, exploration = given.geometry, _exploration(given.geometry, config, given.agent)
    totals = Totals(
        config.environment.metrics,
        config.learning.total_steps,
        earlier_steps=0 if checkpoint is None else int(checkpoint.meta["env_steps"]),
        num_devices=len(geometry.inference),
    )
    acting = [
        Acting(
            hub=given.hub,
            # All have the same key: no two batches have the same number.
            actor=build_actor(
                given.agent,
                given.spec,
                given.page,
                lanes=[lane for lane in geometry.lanes if lane.device == number],
                exploration=exploration,
                key=key,
                device=device,
                rungs=_rungs(config),
            ),
            exchange=exchange,
            evaluator=Evaluator(config.evaluation, given.hub.clock()),
            metrics=given.metrics,
            totals=totals,
            frames_per_step=config.environment.frames_per_step,
        )
        for number, device in enumerate(geometry.inference)
    ]
    if checkpoint is not None and streams_can_resume(config, checkpoint):
        (only,) = acting  # in lock step
        only.restore(restore_acting(checkpoint, only.snapshot(), config))
    return acting


def _exploration(geometry: Geometry, config: Config, agent: Agent) -> np.ndarray:
    """How much each slot of this host explores, `[S] float32`: spread over those of all hosts."""
    rungs = np.asarray(agent.exploration(config.serving.training_slots), np.float32)
    training = geometry.place.own(over_slots(rungs))
    evaluation = np.full(geometry.evaluation_slots, agent.evaluation_exploration, np.float32)
    return np.concatenate([training, evaluation])


def _learning(
    given: _Given,
    programs: MappedPrograms,
    state: LearnerState,
    replay: ShardedReplay,
    exchange: Exchange,
) -> Learning:
    """Learning, which takes state and replay over."""
    return Learning(
        programs=programs,
        state=state,
        replay=replay,
        exchange=exchange,
        metrics=given.metrics,
        publish_every_updates=given.config.learning.publish_every_updates,
        poll_seconds=POLL_SECONDS if given.config.learning.schedule == "asynchronous" else 0.0,
    )


def _rungs(config: Config) -> int:
    """Of the ladders of batch and page sizes."""
    # Unless both run at once every batch has all slots, and their pages fill up together.
    return 3 if config.learning.schedule == "asynchronous" else 1
