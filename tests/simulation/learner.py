"""The parts of a learner that every simulated learner has, and the one without a device."""

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, get_args

import numpy as np

from learner.serving.batching import free_running
from learner.serving.core import Batch, Serving
from learner.serving.hub import Hub
from learner.serving.leases import Role, SlotTable, session_seed
from learner.serving.ledger import AT_REST, residues
from seedrl.agents.window import WindowSpec
from seedrl.replay.index import PageIndex
from seedrl.types import StepType
from tests.system.oracle import START, choose, counting, mix
from tests.system.streams import Held, check_held

if TYPE_CHECKING:
    from tests.simulation.world import World

# Two pages to a stride, sequences that end within a page, and a ring that turns over.
WINDOW = WindowSpec(burn_in=1, unroll=4, bootstrap=2, stride=4)
PAGE_STEPS = 2
CAPACITY_PAGES = 48
TRAINING_SLOTS, EVALUATION_SLOTS = 5, 2
NUM_SLOTS = TRAINING_SLOTS + EVALUATION_SLOTS
_IDLE_SECONDS = 0.01  # less than a killed env server is away
LENGTHS = (1, 2, WINDOW.unroll - 1, WINDOW.unroll, WINDOW.unroll + 1, 11, 3)
FIELDS = ("reward", "step_type", "discount", "action", "hash")


class Learner(Protocol):
    """What a world asks of a learner.

    Attributes:
      hub: where env servers are admitted.
      begin: takes and computes a batch, if one is due; whether it did.
      finish: answers it.
      learn: takes pages into replay.
      save: what a successor starts from.
      check: looks at everything in replay; the broken rules.
      accounts: of the ledger.
    """

    hub: Hub
    begin: Callable[[], bool]
    finish: Callable[[], None]
    learn: Callable[[], None]
    save: Callable[[], Any]
    check: Callable[[], list[str]]
    accounts: Callable[[], dict[str, int]]


def open_hub(world: "World", session: int, page_steps: int = PAGE_STEPS) -> Hub:
    """A hub as `learner.train` builds it, on simulated time."""
    slots = SlotTable(
        training=TRAINING_SLOTS,
        evaluation=EVALUATION_SLOTS,
        seed=session_seed(world.seed, f"session {session}"),
    )
    serving = Serving(slots, page_steps=page_steps, rule=free_running(0.004))
    environment = counting(LENGTHS, world.num_actions)
    return Hub(serving, environment, clock=lambda: world.timeline.now, idle_seconds=_IDLE_SECONDS)


def page_index() -> PageIndex:
    """Of one shard."""
    return PageIndex(capacity_pages=CAPACITY_PAGES, window=WINDOW, page_steps=PAGE_STEPS)


def settle(learner: Learner) -> list[str]:
    """The ledger of a learner whose env servers are gone."""
    broken = residues(learner.accounts(), AT_REST)
    accounts = learner.hub._serving.accounts()
    if accounts["queued"] or accounts["partial"]:
        broken.append("ledger: rows are left although nobody is there")
    return broken


class _Page(NamedTuple):
    """`rows`: (observation, reward, step_type, discount, action, hash) of each step."""

    rows: tuple[tuple[Any, ...], ...]
    carry: int


class _Saved(NamedTuple):
    index: dict[str, Any]
    memory: list[_Page | None]
    link: np.ndarray


Bug = Literal["stores the carry burn-in steps late", "resets the carry one step late"]


class CoreLearner:
    """The real serving core and page index around an agent and a memory of plain numbers.

    With `bug` it has one, which the oracle must see.
    """

    def __init__(
        self, world: "World", session: int, saved: _Saved | None, *, bug: Bug | None = None
    ) -> None:
        self._bug = bug
        self._last_step_type = [StepType.LAST] * NUM_SLOTS
        self.hub = open_hub(world, session)
        self._world = world
        self._carry = [0] * NUM_SLOTS
        self._open: dict[int, _Page] = {}
        self._batch: tuple[Batch, np.ndarray] | None = None
        self._channel: list[tuple[list[_Page], list[int], list[int]]] = []
        self._index = page_index()
        self._memory: list[_Page | None] = [None] * CAPACITY_PAGES
        self._link = np.full(CAPACITY_PAGES + 1, CAPACITY_PAGES)
        if saved is not None:
            # As the session does it: streams resume only under new leases, which have new names.
            self._index.restore(saved.index)
            self._memory = list(saved.memory)
            self._link = saved.link.copy()
        self._num_restored = self._index.num_inserted

    def begin(self) -> bool:
        """Takes a batch and computes its actions; they are sent by `finish`."""
        if self._world.random.random() < 0.2:
            ended = self.hub.take_ended()
            if ended:
                self._channel.append(([], [], ended))
            self.hub.rebalance()
        allowed = [role for role in get_args(Role) if self._world.random.random() < 0.9]
        batch = self.hub.next_batch(allowed, timeout=0.0)
        if batch is None:
            return False
        if len(set(batch.slots.tolist())) != len(batch.slots):
            self._world.oracle.broken.append(f"a batch holds a slot twice: {batch.slots}")
        self._batch = batch, self._act(batch)
        return True

    def _act(self, batch: Batch) -> np.ndarray:
        actions, row = [], 0
        for item in batch.pending:
            timestep = item.timestep
            columns = (timestep.reward, timestep.step_type, timestep.discount)
            steps = zip(timestep.observation.tolist(), *(c.tolist() for c in columns), strict=True)
            for observation, reward, step_type, discount in steps:
                slot, position = int(batch.slots[row]), int(batch.positions[row])
                carry = self._carry[slot]
                mixed = START if self._resets(slot, step_type) else carry
                for field in (*observation, int(reward), step_type, int(discount)):
                    mixed = mix(mixed, field)
                action, _, remembered = choose(mixed, self._world.num_actions)
                self._carry[slot] = mix(mixed, remembered)
                stored = (observation, reward, step_type, discount, action, mixed)
                if slot < TRAINING_SLOTS:
                    page = _Page((), carry) if position == 0 else self._open[slot]
                    if self._bug == "stores the carry burn-in steps late" and position:
                        assert position == WINDOW.burn_in
                        page = page._replace(carry=carry)
                    self._open[slot] = page._replace(rows=(*page.rows, stored))
                actions.append(action)
                row += 1
        return np.array(actions, np.int32 if self._world.num_actions else np.float32)

    def _resets(self, slot: int, step_type: int) -> bool:
        previous, self._last_step_type[slot] = self._last_step_type[slot], StepType(step_type)
        if self._bug == "resets the carry one step late":
            return previous == StepType.FIRST
        return step_type == StepType.FIRST

    def finish(self) -> None:
        """Sends the actions, and pages that are full on to replay."""
        assert self._batch is not None
        (batch, actions), self._batch = self._batch, None
        self.hub.answer(batch, actions)
        full = np.flatnonzero(batch.positions == PAGE_STEPS - 1)
        if full.size and batch.role == "training":
            pages = [self._open[int(slot)] for slot in batch.slots[full]]
            self._channel.append((pages, batch.streams[full].tolist(), []))

    def learn(self) -> None:
        """Takes into memory what has arrived."""
        channel, self._channel = self._channel, []
        for pages, streams, ended in channel:
            places, previous, _ = self._index.plan(streams)
            for page, place in zip(pages, places, strict=True):
                self._memory[place] = page
                self._link[place] = CAPACITY_PAGES
            self._link[previous] = places
            self._link[CAPACITY_PAGES] = CAPACITY_PAGES
            for stream in ended:
                self._index.end_stream(stream)

    def save(self) -> _Saved:
        """A copy of memory and index."""
        return _Saved(self._index.state(), list(self._memory), self._link.copy())

    def accounts(self) -> dict[str, int]:
        """Of the ledger."""
        pages = self._index.num_inserted - self._num_restored
        return {**self.hub.ledger(), "stored": pages * PAGE_STEPS}

    def check(self) -> list[str]:
        """Every page, and every sequence along its links."""
        held: dict[int, Held] = defaultdict(lambda: Held([], []))
        for place, page in enumerate(self._memory):
            if page is not None:
                found = self._check_rows(f"page {place}", page.rows, page.carry)
                if found is not None:
                    held[found[0]].pages.append(found[1] // PAGE_STEPS)
                    if found[1] % PAGE_STEPS:
                        self._world.oracle.broken.append(f"page {place} begins with row {found[1]}")
        for start in self._index.state()["sampleable"]:
            rows: tuple[tuple[Any, ...], ...] = ()
            place, first = start, self._memory[start]
            for _ in range(WINDOW.pages_per_sequence(PAGE_STEPS)):
                page = self._memory[place] if place < CAPACITY_PAGES else None
                rows += () if page is None else page.rows
                place = self._link[place]
            rows = rows[: WINDOW.length]
            if first is None or len(rows) < WINDOW.length:
                self._world.oracle.broken.append(f"sequence {start} is not complete")
                continue
            found = self._check_rows(f"sequence {start}", rows, first.carry)
            if found is not None:
                held[found[0]].starts.append(found[1] // PAGE_STEPS)
        return check_held(held, WINDOW, PAGE_STEPS)

    def _check_rows(
        self, where: str, rows: tuple[tuple[Any, ...], ...], carry: int
    ) -> tuple[int, int] | None:
        observation, *columns = zip(*rows, strict=True)
        return self._world.oracle.check_rows(
            where,
            observation=observation,
            columns=dict(zip(FIELDS, columns, strict=True)),
            carry=carry,
        )
