"""A simulated learner with the real act, insert and learn programs, on one device."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from learner.acting.act_step import ActPrograms, build_act_programs, example_page
from learner.acting.actor import Actor, BatchShapes
from learner.acting.evaluator import Evaluator
from learner.acting.loop import Acting
from learner.learning.device_mapping import (
    MappedPrograms,
    map_programs,
    replicate,
    stack_shards,
)
from learner.learning.learn_step import LearnerState, LearnPrograms, build_learn_programs
from learner.learning.loop import Learning, Snapshot
from learner.learning.page_routing import ShardedReplay
from learner.report.metrics import Tally
from learner.runtime.channel import ActorLearnerChannel, PageQueue, RateLimiter, VersionedParams
from seedrl.agents.agent import Agent
from seedrl.agents.window import WindowSpec
from seedrl.config import EvaluationConfig
from seedrl.replay.buffer import Replay, ReplayState, paged_replay, prioritized_memory
from seedrl.replay.experience import Experience
from seedrl.replay.rate_limiter import RatioLimiter
from seedrl.specs import ActionSpec, ArraySpec, BoxSpec, DiscreteSpec, EnvSpec
from seedrl.types import Page
from tests.simulation.learner import (
    CAPACITY_PAGES,
    EVALUATION_SLOTS,
    NUM_SLOTS,
    PAGE_STEPS,
    TRAINING_SLOTS,
    WINDOW,
    open_hub,
    page_index,
)
from tests.system.harness import sequence_reader
from tests.system.oracle import BOX, HashingAgent, exploration
from tests.system.streams import check_held, check_memory

if TYPE_CHECKING:
    from tests.simulation.world import World

BATCH = 4
_EVALUATION = EvaluationConfig(interval_seconds=0.01, episodes=3)
_EXPONENT = 0.9
EXPLORATION = np.concatenate([exploration(TRAINING_SLOTS), np.zeros(EVALUATION_SLOTS, np.float32)])


class Store(NamedTuple):
    """What keeps the experience, and which sequences are made of it.

    Attributes:
      window, page_steps: of its sequences.
      build: `(agent, page) -> Experience`, with updates of BATCH sequences.
    """

    window: WindowSpec
    page_steps: int
    build: Callable[[Agent, Page], Experience]


class _Programs(NamedTuple):
    """Everything that is compiled, once for all seeds with such actions and such a store."""

    experience: Experience
    shapes: BatchShapes
    act: ActPrograms
    learn: LearnPrograms
    mapped: MappedPrograms
    empty: Any


@functools.cache
def _act_programs(action: ActionSpec, page_steps: int) -> ActPrograms:
    """For every store with such pages."""
    spec = _spec(action)
    agent = HashingAgent(window=WINDOW).build(spec)
    return build_act_programs(
        agent,
        example_page(agent, spec, page_steps),
        num_training=TRAINING_SLOTS,
        num_slots=NUM_SLOTS,
    )


@functools.cache
def _programs(action: ActionSpec, store: Store) -> _Programs:
    spec = _spec(action)
    agent = HashingAgent(window=store.window).build(spec)
    page = example_page(agent, spec, store.page_steps)
    experience = store.build(agent, page)
    learn = build_learn_programs(agent, experience.memory, batch_per_device=BATCH)
    return _Programs(
        experience=experience,
        # Three sizes of batches and two of pages: each is compiled for every action.
        shapes=BatchShapes(
            spec, num_training=TRAINING_SLOTS, num_evaluation=EVALUATION_SLOTS, rungs=2
        ),
        act=_act_programs(action, store.page_steps),
        learn=learn,
        mapped=map_programs(learn, _devices()),
        empty=stack_shards(lambda: experience.memory.init(page), _devices()),
    )


def _spec(action: ActionSpec) -> EnvSpec:
    return EnvSpec(ArraySpec((4,), "uint32"), action)


def _replay(agent: Agent) -> Replay:
    return paged_replay(
        window=WINDOW,
        page_steps=PAGE_STEPS,
        capacity_pages=CAPACITY_PAGES,
        priority_exponent=_EXPONENT,
        initial_priorities=agent.initial_priorities,
    )


def _prioritized(agent: Agent, page: Page) -> Experience:
    del page
    limiter = RatioLimiter(
        replay_ratio=0.5,
        batch_steps=BATCH * WINDOW.unroll,
        tolerance_updates=4.0,
        min_sequences=8,
    )
    memory = prioritized_memory(_replay(agent), batch_per_device=BATCH, importance_exponent=0.6)
    return Experience(memory, page_index, limiter)


PRIORITIZED = Store(WINDOW, PAGE_STEPS, _prioritized)


@functools.cache
def _read_sequences(action: ActionSpec) -> Any:
    """Reads what sampling gives of a prioritized store."""
    return sequence_reader(_replay(HashingAgent(window=WINDOW).build(_spec(action))))


def _action(num_actions: int) -> ActionSpec:
    """What env servers say of the counting environment: its actions, or those of BOX for 0."""
    low, high = zip(*BOX, strict=True)
    return DiscreteSpec(num_actions) if num_actions else BoxSpec((2,), low, high)


def _devices() -> list[jax.Device]:
    return jax.local_devices()[:1]


class _Begun(NamedTuple):
    """What learning begins with."""

    state: Any
    memory: Any
    index: Any


def _begun(programs: _Programs, key: jax.Array, saved: Snapshot | None) -> _Begun:
    state = jax.jit(programs.learn.init)(key)
    memory: Any = programs.empty
    index: Any = programs.experience.index()
    if saved is not None:
        state, memory = LearnerState(*saved.state), saved.replay
        index.restore(saved.indices[0])
    # A copy: learning consumes it.
    memory = jax.tree.map(
        lambda new, old: jax.device_put(np.array(new), old.sharding), memory, programs.empty
    )
    return _Begun(replicate(LearnerState(*state), _devices()), memory, index)


class _NoMetrics:
    """Metrics that nobody reads: files have no place in a simulation."""

    tally = Tally

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


class ProgramLearner:
    """Real acting and learning, driven by the world instead of by threads."""

    store = PRIORITIZED

    def __init__(self, world: "World", session: int, saved: Snapshot | None) -> None:
        programs = _programs(_action(world.num_actions), self.store)
        experience = programs.experience
        self._world = world
        self.hub = open_hub(world, session, self.store.page_steps)
        key = jax.random.PRNGKey(world.seed)
        state, memory, index = _begun(programs, key, saved)
        local = jax.tree.map(programs.mapped.local_part, state.params)
        published = programs.mapped.publish(local)
        metrics: Any = _NoMetrics()
        self.channel = channel = ActorLearnerChannel(
            RateLimiter(experience.limiter),
            [VersionedParams(params, int(state.updates)) for params in published],
            wake_acting=self.hub.wake,
            clock=self.hub.clock,
        )
        # One thread does both: the queue must never be what acting waits for.
        channel.pages = PageQueue(2**40)
        # On its device as acting returns it: else each program is compiled for both.
        acting_state = jax.device_put(
            programs.act.init(jax.random.fold_in(key, session)), _devices()[0]
        )
        self._acting = Acting(
            hub=self.hub,
            actor=Actor(programs.act, programs.shapes, acting_state, lambda _: EXPLORATION),
            channel=channel,
            evaluator=Evaluator(_EVALUATION, world.timeline.now),
            metrics=metrics,
            poll_seconds=0.0,
        )
        channel.count_steps = lambda: self._acting.training_steps
        self._learning = Learning(
            programs=programs.mapped,
            state=state,
            replay=ShardedReplay(
                experience,
                memory,
                [index],
                self.store.page_steps,
                TRAINING_SLOTS,
            ),
            channel=channel,
            metrics=metrics,
            publish_every_updates=1,
            poll_seconds=0.0,
        )

    def begin(self) -> bool:
        """Acts on a batch, if one is due, and answers it: there is no stopping in the middle."""
        self._acting.run_once()
        return False

    def finish(self) -> None:
        """Never called: `begin` leaves nothing to do."""

    def learn(self) -> None:
        """Inserts pages, and learns if an update is owed."""
        self._learning.run_once()
        while len(self.channel.pages):  # a store without room, until there is
            self._learning.run_once()

    def save(self) -> Snapshot:
        """What a checkpoint with replay holds."""
        return self._learning.snapshot(with_replay=True)

    def accounts(self) -> dict[str, int]:
        """Of the ledger."""
        return {
            **self.hub.ledger(),
            "stored": self._learning.stored_rows,
            "stale": self._learning.stale_rows,
            "abandoned": sum(self._acting.totals.abandoned_rows),
        }

    @property
    def updates(self) -> int:
        """Updates taken."""
        return self._learning.updates

    def check(self) -> list[str]:
        """Every page that is held, and every sequence as sampling gives it."""
        self._learning.insert_pages()
        (index,), replay = (snapshot := self.save()).indices, snapshot.replay
        assert isinstance(replay, ReplayState)
        memory: ReplayState = jax.tree.map(lambda leaf: leaf[0], replay)
        broken = self.check_versions(snapshot)
        starts = np.flatnonzero(memory.sampling_weight > 0)
        if starts.tolist() != index["sampleable"]:
            broken.append("the device and the index do not agree on what can be sampled")
        held = check_memory(
            self._world.oracle,
            memory,
            _read_sequences(_action(self._world.num_actions))(memory, starts),
            starts,
            num_pages=min(int(str(index["num_inserted"])), CAPACITY_PAGES),
            page_steps=PAGE_STEPS,
            priority_exponent=_EXPONENT,
            exploration=EXPLORATION,
        )
        return broken + check_held(held, WINDOW, PAGE_STEPS)

    def check_versions(self, snapshot: Snapshot) -> list[str]:
        """Whether as many updates were applied as are counted."""
        version = int(snapshot.state.params["version"])
        if version != int(snapshot.state.updates):
            return [f"{version} updates were applied, {snapshot.state.updates} counted"]
        return []
