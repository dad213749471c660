"""An agent whose every output can be computed by hand, and what replay must then hold.

With the counting environment, everything in a stream follows from its seed: the observation says
where it is, the reward hashes the action received, and this agent's carry hashes all that it has
seen and done since the episode began. So any row that is swapped, shifted, doubled, lost, stitched
to another stream or acted on with another carry differs from what `predict` says.
"""

import functools
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax
from seedrl_plugin.counting import code_of, reward_of

from learner.acting.actor import over_slots
from learner.serving.leases import environment_seed
from seedrl.agents.agent import ActOutput, Agent
from seedrl.agents.gradient_update import GradientUpdate, LossOutput
from seedrl.agents.window import WindowSpec
from seedrl.config import EnvironmentConfig
from seedrl.specs import DiscreteSpec, EnvSpec, MultiDiscreteSpec
from seedrl.types import Array, Sequence, StepType, StoredStep, TimeStep, Tree
from tests.system.harness import Outcome, Shard

# Bounds of two real actions: rescaling to them is exact, and takes each of them elsewhere.
BOX = ((-2.0, 6.0), (0.0, 0.5))
# How many actions there are of a kind: of one choice, of several at once, or those of BOX if none.
Actions: TypeAlias = int | tuple[int, ...]
START = 0x811C_9DC5
_FACTOR = 0x9E37_79B1
_MASK = 0xFFFF_FFFF


def exploration(num_slots: int) -> np.ndarray:
    """A number for each training slot, so that rows tell which one they were acted on as."""
    return (0.25 + np.arange(num_slots) / 64).astype(np.float32)


@dataclass(frozen=True, kw_only=True)
class HashingAgent:
    """Acts by hashing; its parameters count the updates and sum up the rewards trained on."""

    window: WindowSpec

    def build(self, spec: EnvSpec) -> Agent:
        """The agent, for the counting environment."""
        if isinstance(spec.action, DiscreteSpec):
            choose = functools.partial(_choose, spec.action.num_actions)
        elif isinstance(spec.action, MultiDiscreteSpec):
            choose = functools.partial(_choose_several, spec.action.counts)
        else:
            choose = _choose_in_box
        update = GradientUpdate(
            functools.partial(_loss, self.window),
            optax.GradientTransformation(lambda params: (), _count_and_add),
        )
        return Agent(
            window=self.window,
            init=lambda key: {"version": jnp.zeros(()), "seen": jnp.zeros(())},
            initial_carry=lambda batch_size: jnp.zeros(batch_size, jnp.uint32),
            act=functools.partial(_act, choose),
            exploration=exploration,
            evaluation_exploration=0.0,
            init_state=update.init_state,
            update=update,
            initial_priorities=lambda steps: priority(steps.extras["hash"][0], is_initial=True),
        )


def priority(first_hash: Array, *, is_initial: bool) -> Array:
    """The priority of a sequence, from the hash of its first row."""
    return (first_hash % np.uint32(7)).astype(np.float32) + (1 if is_initial else 11)


def _mix(mixed: Array, field: Array) -> Array:
    mixed = (mixed ^ field.astype(jnp.uint32)) * jnp.uint32(_FACTOR)
    return mixed ^ mixed >> jnp.uint32(15)


def _choose(num_actions: int, mixed: Array) -> tuple[Array, Array]:
    action = (mixed % jnp.uint32(num_actions)).astype(jnp.int32)
    return action, action


def _choose_several(counts: tuple[int, ...], mixed: Array) -> tuple[Array, Array]:
    """Of each count, by 8 bits of its own."""
    octets = [mixed >> (8 * k) & 0xFF for k in range(len(counts))]
    parts = [octet % jnp.uint32(count) for octet, count in zip(octets, counts, strict=True)]
    return jnp.stack(parts, axis=-1).astype(jnp.int32), mixed & 0xFF_FFFF


def _choose_in_box(mixed: Array) -> tuple[Array, Array]:
    """Two numbers of [-1, 1) of 8 bits each, so that no rescaling by powers of 2 rounds them."""
    octets = jnp.stack([mixed & 0xFF, mixed >> 8 & 0xFF], axis=-1)
    return octets.astype(jnp.float32) / 128 - 1, mixed & 0xFFFF


def _act(
    choose: Callable[[Array], tuple[Array, Array]],
    params: Tree,
    carry: Array,
    timestep: TimeStep,
    epsilon: Array,
    key: Array,
) -> ActOutput:
    del key
    mixed = jnp.where(timestep.step_type == StepType.FIRST, jnp.uint32(START), carry)
    fields = [*timestep.observation.T, timestep.reward, timestep.step_type, timestep.discount]
    for field in fields:
        mixed = _mix(mixed, field)
    action, remembered = choose(mixed)
    version = jnp.full(mixed.shape, params["version"], jnp.int32)
    extras = {"hash": mixed, "version": version, "exploration": epsilon}
    return ActOutput(action, _mix(mixed, remembered), extras)


def _loss(
    window: WindowSpec, params: Tree, target: Tree, sequence: Sequence, weights: Array, key: Array
) -> tuple[Array, LossOutput]:
    del target, weights
    rows = slice(window.burn_in, window.burn_in + window.unroll)
    reward = jnp.mean(sequence.steps.timestep.reward[rows])
    versions = sequence.steps.extras["version"][rows].astype(jnp.float32)
    drawn = jax.random.uniform(key)
    metrics = {
        "learner_version": params["version"],
        "acting_version": jnp.mean(versions),
        "trained_reward": reward,
        # The learner takes means over devices; these two tell whether the keys were equal.
        "drawn": drawn,
        "drawn_squared": jnp.square(drawn),
    }
    priorities = priority(sequence.steps.extras["hash"][0], is_initial=False)
    return params["seen"] * reward, LossOutput(priorities, metrics)


def _count_and_add(gradients: Tree, state: Tree, params: Tree) -> tuple[Tree, Tree]:
    del params
    return {"version": jnp.ones(()), "seen": gradients["seen"]}, state


def counting(lengths: tuple[int, ...], num_actions: Actions) -> EnvironmentConfig:
    """The counting environment, with those actions."""
    name, actions = "seedrl_plugin.counting:make_real", {"bounds": BOX}
    if isinstance(num_actions, tuple):
        actions = {"counts": num_actions}
    elif num_actions:
        name, actions = "seedrl_plugin.counting:make", {"num_actions": num_actions}
    return EnvironmentConfig(id=name, arguments=json.dumps({"lengths": lengths, **actions}))


class Prediction(NamedTuple):
    """The rows of a stream, `[R]` each (`observation [R, 4]`), and the carry before each."""

    observation: np.ndarray
    reward: np.ndarray
    step_type: np.ndarray
    discount: np.ndarray
    action: np.ndarray
    hash: np.ndarray
    carry: np.ndarray


def predict(seed: int, lengths: tuple[int, ...], num_actions: Actions, num_rows: int) -> Prediction:
    """The first `num_rows` rows of a counting environment played by a hashing agent."""
    rows = itertools.islice(rows_of(seed, lengths, num_actions), num_rows)
    columns = zip(*rows, strict=True)
    action = np.int32 if num_actions else np.float32
    dtypes = (np.uint32, np.float32, np.uint8, np.float32, action, np.uint32, np.uint32)
    return Prediction(
        *(np.array(column, dtype) for column, dtype in zip(columns, dtypes, strict=True))
    )


def rows_of(seed: int, lengths: tuple[int, ...], num_actions: Actions) -> Iterator[tuple[Any, ...]]:
    """The rows of a counting environment played by a hashing agent: the fields of `Prediction`."""
    episode, step, received, carry = 0, 0, 0, 0
    while True:
        length = lengths[episode % len(lengths)]
        observation = (seed & 0xFFFF, seed >> 16, episode, step)
        step_type = StepType.LAST if step == length else StepType.MID if step else StepType.FIRST
        reward = reward_of(*observation, received) if step else 0
        discount = 0 if step_type == StepType.LAST and episode % 2 == 0 else 1
        mixed = carry if step else START
        for field in (*observation, reward, int(step_type), discount):
            mixed = mix(mixed, field)
        action, received, remembered = choose(mixed, num_actions)
        yield observation, reward, int(step_type), discount, action, mixed, carry
        carry = mix(mixed, remembered)
        episode, step = (episode + 1, 0) if step == length else (episode, step + 1)


class Choice(NamedTuple):
    """An action as it is stored, as its environment hashes it, and as the carry does."""

    action: Any
    received: int
    remembered: int


def choose(mixed: int, num_actions: Actions) -> Choice:
    """What `_choose`, `_choose_several` and `_choose_in_box` do on the device."""
    if isinstance(num_actions, tuple):
        parts = [(mixed >> 8 * k & 0xFF) % count for k, count in enumerate(num_actions)]
        return Choice(parts, code_of(parts), mixed & 0xFF_FFFF)
    if num_actions:
        return Choice(*[mixed % num_actions] * 3)
    action = [(mixed & 0xFF) / 128 - 1, (mixed >> 8 & 0xFF) / 128 - 1]
    rescaled = [
        low + (number + 1) / 2 * (high - low)
        for number, (low, high) in zip(action, BOX, strict=True)
    ]
    return Choice(action, code_of(rescaled), mixed & 0xFFFF)


def mix(mixed: int, field: int) -> int:
    """What `_act` does on the device, on Python's integers."""
    mixed = (mixed ^ field) * _FACTOR & _MASK
    return mixed ^ mixed >> 15


class Stream(NamedTuple):
    """What replay holds of one slot's stream under one lease.

    Attributes:
      pages: the numbers of its pages that are held, sorted: 0 is the first of the stream.
      starts: the numbers of those in which sequences start that can be sampled, sorted.
    """

    slot: int
    epoch: int
    shard: int
    pages: list[int]
    starts: list[int]


class Oracle:
    """Compares what a run has left with what it must have left."""

    def __init__(self, outcome: Outcome, lengths: tuple[int, ...], num_actions: Actions) -> None:
        self._outcome = outcome
        self._page_steps = outcome.config.replay.page_steps
        self._window: WindowSpec = outcome.config.agent.window
        self._episode_starts = np.cumsum([0, *(length + 1 for length in lengths)])
        self._lengths = lengths
        self._num_actions = num_actions
        self._predictions: dict[int, Prediction] = {}
        self._slots = {
            environment_seed(outcome.config.seed, slot, epoch): (slot, epoch)
            for slot, epochs in enumerate(outcome.epochs)
            for epoch in range(1, epochs + 1)
        }
        self.streams: dict[int, Stream] = {}
        self.broken: list[str] = []

    def check(self) -> list[str]:
        """The rules that are broken, one a line; fills in `streams`."""
        for number, shard in enumerate(self._outcome.shards):
            self._check_pages(number, shard)
            self._check_sequences(number, shard)
        for stream in self.streams.values():
            self._check_stream(stream)
        return self.broken

    def _check_pages(self, number: int, shard: Shard) -> None:
        steps, carry = shard.state.pages
        for page in range(shard.num_pages):
            rows = jax.tree.map(lambda leaf, page=page: leaf[page], steps)
            where = f"shard {number}, page {page}"
            found = self._check_rows(where, rows, carry[page])
            if found is None:
                continue
            seed, row = found
            slot, epoch = self._slots[seed]
            if row % self._page_steps:
                self.broken.append(f"{where}: a page begins with row {row}")
            stream = self.streams.setdefault(seed, Stream(slot, epoch, number, [], []))
            if stream.shard != number or slot % len(self._outcome.shards) != number:
                self.broken.append(f"{where}: holds rows of slot {slot}")
            stream.pages.append(row // self._page_steps)

    def _check_sequences(self, number: int, shard: Shard) -> None:
        steps, carry = shard.sequences
        mass = shard.state.sampling_weight[shard.starts]
        exponent = self._outcome.config.replay.priority_exponent
        for index, page in enumerate(shard.starts):
            rows = jax.tree.map(lambda leaf, index=index: leaf[:, index], steps)
            where = f"shard {number}, sequence of page {page}"
            found = self._check_rows(where, rows, carry[index])
            if found is None:
                continue
            seed, row = found
            self.streams[seed].starts.append(row // self._page_steps)
            first = rows.extras["hash"][0]
            allowed = [
                float(priority(first, is_initial=flag)) ** exponent for flag in (True, False)
            ]
            if not np.isclose(mass[index], allowed, rtol=1e-4).any():
                self.broken.append(f"{where}: mass {mass[index]}, expected one of {allowed}")

    def _check_rows(
        self, where: str, rows: StoredStep, carry: np.ndarray
    ) -> tuple[int, int] | None:
        """Rows and carry against the prediction; the stream's seed and its first row's number."""
        environment, incarnation, episode, step = map(int, rows.timestep.observation[0])
        seed = incarnation << 16 | environment
        if seed not in self._slots:
            self.broken.append(f"{where}: environment {environment} was never started")
            return None
        slot, _ = self._slots[seed]
        if slot >= self._outcome.config.serving.training_slots:
            self.broken.append(f"{where}: holds rows of evaluation slot {slot}")
            return None
        rounds, rest = divmod(episode, len(self._lengths))
        row = int(rounds * self._episode_starts[-1] + self._episode_starts[rest] + step)
        expected = self._prediction(seed, row + len(rows.action))
        part = Prediction(*(column[row : row + len(rows.action)] for column in expected))
        timestep = rows.timestep
        stored = Prediction(
            timestep.observation,
            timestep.reward,
            timestep.step_type,
            timestep.discount,
            rows.action,
            rows.extras["hash"],
            part.carry,
        )
        self.broken += [
            f"{where}: {name} is not that of rows {row}... of slot {slot}"
            for name, left, right in zip(Prediction._fields, stored, part, strict=True)
            if not np.array_equal(left, right)
        ]
        # Before its first row a stream has no past: FIRST resets whatever the slot held.
        if row and carry != part.carry[0]:
            self.broken.append(f"{where}: carry {carry} before row {row}, expected {part.carry[0]}")
        if not np.array_equal(rows.version, rows.extras["version"]):
            self.broken.append(f"{where}: the stored version is not the one that acted")
        if (np.diff(rows.version) < 0).any():
            self.broken.append(f"{where}: parameters went back in time")
        own = over_slots(exploration(self._outcome.config.serving.training_slots))[slot]
        if (rows.extras["exploration"] != own).any():
            self.broken.append(f"{where}: acted with the exploration of another slot")
        return seed, row

    def _prediction(self, seed: int, num_rows: int) -> Prediction:
        held = self._predictions.get(seed)
        if held is None or len(held.reward) < num_rows:
            held = predict(seed, self._lengths, self._num_actions, 2 * num_rows)
            self._predictions[seed] = held
        return held

    def _check_stream(self, stream: Stream) -> None:
        where = f"slot {stream.slot}, epoch {stream.epoch}"
        stream.pages.sort()
        stream.starts.sort()
        first, last = stream.pages[0], stream.pages[-1]
        if stream.pages != list(range(first, last + 1)):
            self.broken.append(f"{where}: pages {stream.pages} have gaps or doubles")
        pages_per_stride = self._window.stride // self._page_steps
        pages_per_sequence = -(-self._window.length // self._page_steps)
        expected = [
            page
            for page in range(first, last + 2 - pages_per_sequence)
            if page % pages_per_stride == 0
        ]
        if stream.starts != expected:
            self.broken.append(f"{where}: sequences from {stream.starts}, expected {expected}")
