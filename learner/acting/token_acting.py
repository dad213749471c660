"""The acting thread of token policies: turns in, completions out, whole groups on to learning.

Each environment is a group of its own, so a step is one turn. It is not answered at once: a row of
a `TokenGenerator` reads the turn and samples, and the step is answered when the completion has
ended. An environment that is ready for an episode gets the next rollout of `Groups`. An answer
names the next one in advance, in case it ends its episode: then a rollout of one turn takes a
message each way.
"""

import functools
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from learner.acting.kind import ActingKind
from learner.acting.loop import Acting
from learner.acting.token_generator import TokenGenerator
from learner.acting.token_groups import (
    GroupPlan,
    Groups,
    held_out_seed,
    question_seed,
)
from learner.learning.loop import Learning
from learner.runtime.channel import FilledPages, VersionedParams
from learner.serving.batching import Pending, free_running
from learner.serving.core import Batch
from learner.serving.leases import Role, SlotRange
from learner.serving.ledger import TOKENS
from seedrl.agents.grpo import GRPOConfig
from seedrl.agents.token_agent import POLICY, padding
from seedrl.config import Config, require
from seedrl.errors import ConfigError
from seedrl.networks import decoder
from seedrl.replay.group_queue import GroupQueueConfig
from seedrl.replay.index import tree_bytes
from seedrl.specs import EnvSpec, TokensSpec
from seedrl.turns import completion_row, turn_ids
from seedrl.types import NEXT, Array, Page, StepType, StoredStep, TimeStep
from seedrl.wire.contract import NEXT_MINOR

_FIRST, _LAST = StepType.FIRST.value, StepType.LAST.value
# A turn waits for no other: the rows of a cache are filled one by one.
RULE = free_running(0.0)._replace(is_separate=True)
# Of a tick: when steps that have arrived are taken.
_MIDDLE = 0.4
_CONFIRMING = 2**20  # the first held-out question of confirmations; rounds have fewer
# Rollouts of a group, and tokens of each, that the dashboard shows.
_MOST_ROLLOUTS, _MOST_TOKENS = 16, 512


class TokenActor:
    """The generators of training and of evaluation slots, in place of an `Actor`."""

    device, page_steps = 0, 1

    def __init__(
        self,
        config: GRPOConfig,
        spec: EnvSpec,
        *,
        slot_ranges: Sequence[SlotRange],
        exploration: np.ndarray,
        key: Array,
        device: jax.Device,
        **_: Any,
    ):
        """`exploration [S] float32` are the temperatures of all slots, which do not decay."""
        assert isinstance(spec.action, TokensSpec), "the agent has refused other environments"
        self.sizes = spec.action
        self.generators: dict[Role, TokenGenerator] = {}
        self.slots: dict[Role, range] = {}
        self.rows: dict[int, tuple[TokenGenerator, int]] = {}  # by slot
        for own_key, own in zip(jax.random.split(key, len(slot_ranges)), slot_ranges, strict=True):
            if own.size:
                temperature = exploration[np.array(own.slots)]
                generator = TokenGenerator(config.network, self.sizes, temperature, own_key, device)
                self.generators[own.role], self.slots[own.role] = generator, own.slots
                self.rows |= {slot: (generator, row) for row, slot in enumerate(own.slots)}
        self.end_slot = max(self.rows) + 1

    @property
    def state_bytes(self) -> int:
        """Bytes of the KV caches; before the acting thread starts."""
        return sum(generator.cache_bytes for generator in self.generators.values())

    def warm_up_largest(self, versioned: VersionedParams) -> None:
        """Compiles all programs: acting needs them to start."""
        for generator in self.generators.values():
            generator.warm_up(versioned.params)

    def compile_others(self, versioned: VersionedParams) -> None:
        """Nothing: see `warm_up_largest`."""


class TokenActing(Acting):
    """`Acting` on tokens: a step is answered when its completion has ended, not at once.

    Owned by its thread, as `Acting` is; of that it keeps evaluation, episodes and the ledger.
    """

    def __init__(self, *, actor: TokenActor, plan: GroupPlan, **others: Any):
        """Args are those of `Acting`."""
        super().__init__(actor=actor, **others)  # type: ignore[arg-type]
        self._generators, self._sizes = actor.generators, actor.sizes
        self._slots, self._rows = actor.slots, actor.rows
        self._plan, self._groups = plan, Groups(plan)
        # By slot: its step, until it has an answer; and the answer.
        self._asked: dict[int, Pending] = {}
        self._actions = np.zeros((actor.end_slot, len(self._sizes.largest)), np.int32)
        self._streams: dict[int, int] = {}  # of each slot that plays
        # Of the rollout that each slot plays, or is asked to, and of the one that it plays next, if
        # its episode ends with the answer that was sent. Evaluation has numbers of its own.
        self._numbers = defaultdict[int, list[int]](list)
        # Slots that wait for a question.
        self._ready: dict[Role, deque[int]] = {role: deque() for role in actor.generators}
        self._answered: list[Pending] = []
        # Seconds of a tick in the last calls. The shortest counts: one may have waited for a core.
        self._ticks = deque([0.0], maxlen=3)
        self._round: tuple[int, bool] | None = None  # of evaluation
        self._next_held_out = 0  # the number of its next rollout
        # The group that was sent last, and the newest parameters then.
        self._newest: tuple[StoredStep, int] | None = None
        # Sampled tokens of each rollout that was sent, in the order in which they are trained.
        self._sent: deque[int] = deque()
        self._num_trained = self._num_lost = self._num_taken = 0
        self._count_taken: Callable[[], int] = lambda: 0  # rollouts of this session, by updates
        self._accounts: dict[str, int] = {}

    def follow(self, learning: Learning) -> None:
        """Continues with the groups after those that `learning` has had; before the threads start.

        Groups of an earlier session that were neither trained nor saved are asked again.
        """
        # Questions may wait for newer parameters, and not only for what the limiter allows.
        self._channel.on_published = self._hub.wake
        plan, waiting = self._plan, learning.num_sequences // self._plan.group
        self._groups = Groups(plan, learning.updates * plan.groups_per_update + waiting)
        self._count_taken = lambda: max(
            0, learning.accounts()["taken"] - learning.accounts()["requeued"]
        )

    def run_once(self) -> None:
        """Ticks of all rows; takes steps, asks and answers while the device computes them."""
        now = self.laps.start()
        if now >= self._next_poll:
            self._next_poll = now + self._poll_seconds
            self._poll(now)
        is_complete = self.totals.training_steps >= self.totals.total_steps
        roles = self._playing(is_complete)
        stage, timeout = "acting_act", 0.0
        if not any(self._generators[role].is_live.any() for role in roles):
            # First: the steps that it waits for may be those that come of these answers.
            self._ask_ready(is_complete)
            self._send_answers()
            # Without a question to ask it waits for learning, else for turns.
            stage = "acting_waits" if self._ready["training"] else "acting_environment"
            timeout = self._poll_seconds
        # Before the tick and once in the middle, so that the end of an episode and its next
        # question come within one tick. Not at each arrival, which would cost as much as several.
        self._serve(roles, stage, timeout, is_complete)
        # Of those that play now: a round of evaluation may have ended.
        roles = self._playing(is_complete)
        busy = [role for role in roles if self._generators[role].is_live.any()]
        for role in busy:
            versioned = self._params if role == "training" else self.evaluator.frozen
            self._generators[role].start(versioned.params, versioned.version)
        start = self._clock()
        tick = min(self._ticks)
        if busy:
            # Of several ticks in the first one: no row waits for its environment then.
            time.sleep(max(0.0, start + _MIDDLE * tick - self._clock()))
            self._serve(roles, "acting_act", 0.0, is_complete)
        self._send_groups()
        # Then the tick is shorter than it was.
        is_late = all(self._generators[role].is_done for role in busy)
        for role in busy:
            self._finish(role)
        if busy:
            most = max(self._generators[role].num_ticks for role in busy)
            self._ticks.append(0.7 * tick if is_late else (self._clock() - start) / most)

    def _serve(self, roles: list[Role], stage: str, timeout: float, is_complete: bool) -> None:
        # Takes all steps that have arrived, the first one within the timeout.
        while (batch := self._hub.next_batch(roles, timeout, self._device)) is not None:
            timeout = 0.0
            self.laps.lap(stage)
            self._take(batch)
            self.laps.lap("acting_other")
        self.laps.lap(stage)
        self._ask_ready(is_complete)
        self._send_answers()

    def _playing(self, is_complete: bool) -> list[Role]:
        roles: list[Role] = [] if is_complete else ["training"]
        return [*roles, "evaluation"] if self.evaluator.is_running else roles

    def _poll(self, now: float) -> None:
        super()._poll(now)
        self._accounts = self._token_accounts()

    def _end_streams(self, ended: Sequence[int]) -> None:
        for stream in ended:
            slot = stream % len(self._rows)
            if self._streams.get(slot) == stream:
                self._drop(slot)

    # Steps of env servers.

    def _take(self, batch: Batch) -> None:
        steps = zip(*(item.timestep for item in batch.pending), strict=True)
        kinds, rewards, _, turns = map(np.concatenate, steps)
        # An episode begins with the question of a seed, also if another one came before it; NEXT
        # ends one with the question of the next.
        kinds = np.where(kinds == NEXT, _LAST, np.where(turns[:, 0] > 0, _FIRST, kinds))
        slots, streams = batch.slots.tolist(), batch.streams.tolist()
        for place in np.flatnonzero(kinds != _FIRST).tolist():
            generator, row = self._rows[slots[place]]
            if not generator.num_open(row):
                # A wrapper, say, has ended an episode without an answer.
                kinds[place] = _FIRST
                continue
            generator.reward(row, rewards[place])
            # Without room for an answer the episode ends: the environment might ask for ever.
            if kinds[place] != _LAST and not generator.ask(row, turn_ids(turns[place])):
                kinds[place] = _LAST
        self._look_at_round()
        if batch.role == "training" or self.evaluator.is_running:
            self._account(batch, TimeStep(kinds, rewards, (), ()), num_pages=0)
        self._asked.update(zip(slots, batch.pending, strict=True))
        self._streams.update(zip(slots, streams, strict=True))
        for slot, kind, turn in zip(slots, kinds.tolist(), turns, strict=True):
            self._take_row(slot, kind, turn, batch.role)

    def _take_row(self, slot: int, kind: int, turn: np.ndarray, role: Role) -> None:
        (generator, row), numbers = self._rows[slot], self._numbers[slot]
        if kind != _LAST or not turn[0]:  # it has not asked the next question
            self._groups.lost(*numbers[1:])
            del numbers[1:]
        if kind == _LAST and numbers:
            number = numbers.pop(0)
            if role == "training":
                self._groups.finished(number, generator.rollout(row))
            generator.begin(row, slot)
            if turn[0]:
                self._episodes.begin(slot)
        if kind not in (_FIRST, _LAST):
            return
        # An env server that starts a question again has lost what was answered.
        is_new = not generator.num_open(row)
        if is_new and numbers and self._seed_of(role, numbers[0]) == turn[0] - 1:
            generator.begin(row, numbers[0])
            has_room = generator.ask(row, turn_ids(turn))
            assert has_room, "the agent has checked that a question fits"
            return
        # FIRST of an environment that is new, or was built again: nothing is open from here on.
        self._forget(slot)
        self._ready[role].append(slot)

    def _look_at_round(self) -> None:
        # Each round has its own questions: those of an earlier one are asked again.
        if self.evaluator.round != self._round:
            self._round = self.evaluator.round
            first_question = _CONFIRMING * self.evaluator.is_confirming
            self._next_held_out = first_question * self.evaluator.rollouts_per_question
            for slot in self._slots.get("evaluation", ()):
                self._numbers[slot] = []

    def _ask_ready(self, is_complete: bool) -> None:
        training = self._ready["training"]
        while training and not is_complete and (number := self._take_number()) is not None:
            self._give(training.popleft(), "training", number)
        self._look_at_round()
        ready = self._ready.get("evaluation", deque())
        # One that has played its share waits: a question for nothing would only cost time.
        for slot in [slot for slot in ready if self.evaluator.counts(slot)]:
            ready.remove(slot)
            number, self._next_held_out = self._next_held_out, self._next_held_out + 1
            self._episodes.questions[slot] = number // self.evaluator.rollouts_per_question
            self._give(slot, "evaluation", number)

    def _seed_of(self, role: Role, number: int) -> int:
        # Of the question of a rollout.
        if role == "training":
            return question_seed(self._plan.run_seed, number // self._plan.group)
        question = number // self.evaluator.rollouts_per_question
        return held_out_seed(self._plan.run_seed, question)

    def _take_number(self) -> int | None:
        # Before the version: an update that is taken between the two looks then counts twice.
        now: Any = self._channel.limiter.now  # that of `GroupQueueConfig`
        return self._groups.take(
            waiting=(now.completed - now.taken) // self._plan.group,
            learned=self._channel.learned_version,
            acting=self._params.version,
        )

    def _next_seed(self, slot: int) -> int | None:
        # Of the question that this training slot is asked if its episode ends with the answer that
        # it is given now. It is asked from now on, as far as `max_lag_updates` is concerned.
        is_later = self._ready["training"] or self._asked[slot].group.lease.minor < NEXT_MINOR
        if is_later or (number := self._take_number()) is None:
            return None
        self._numbers[slot].append(number)
        return self._seed_of("training", number)

    def _give(self, slot: int, role: Role, number: int) -> None:
        self._numbers[slot] = [number]
        self._reply(slot, completion_row(self._sizes, (), self._seed_of(role, number)))

    def _reply(self, slot: int, action: np.ndarray) -> None:
        self._actions[slot] = action
        self._answered.append(self._asked.pop(slot))

    def _send_answers(self) -> None:
        if not self._answered:
            return
        self.laps.lap("acting_other")
        answered, self._answered = self._answered, []
        for role in self._generators:
            if own := [step for step in answered if step.group.role == role]:
                batch = _joined(own)
                self._hub.answer(batch, self._actions[batch.slots])
        self.laps.lap("acting_wire")

    def _drop(self, slot: int) -> None:
        # Its stream was cut: nobody will answer for it any more.
        self._forget(slot)
        self._streams.pop(slot, None)
        for ready in self._ready.values():
            if slot in ready:
                ready.remove(slot)
        if slot in self._asked:
            self._reply(slot, completion_row(self._sizes, ()))

    def _forget(self, slot: int) -> None:
        # What the slot played is not finished.
        generator, row = self._rows[slot]
        numbers = self._numbers.pop(slot, [])
        if numbers and slot in self._slots["training"]:
            self._groups.lost(*numbers)
            self._num_lost += generator.num_open(row)
            self._tally.counted["lost_rollouts"] += 1
        generator.begin(row, slot)

    # Tokens.

    def _finish(self, role: Role) -> None:
        generator = self._generators[role]
        before = generator.num_sampled
        slots = self._slots[role]
        for row in generator.finish():
            slot, ids = slots[row], generator.completion(row)
            next_seed = self._next_seed(slot) if role == "training" else None
            self._reply(slot, completion_row(self._sizes, ids, next_seed))
            if role == "training":
                self._tally.measured["completion_tokens"].append(len(ids))
        if role == "training":
            self._tally.counted["generated_tokens"] += generator.num_sampled - before
            lag = self._channel.learned_version - generator.version
            self._tally.measured["serving_lag_updates"].append(lag)
        self.laps.lap("acting_act")

    def _send_groups(self) -> None:
        while (group := self._groups.pop()) is not None:
            is_policy, first = group.extras.source == POLICY, group.version[:, :1]
            lags = np.average(group.version - first, axis=1, weights=is_policy)
            self._tally.measured["cache_lag_updates"].extend(lags.tolist())
            self._sent.extend(is_policy.sum(axis=1).tolist())
            self._channel.limiter.acted(0, len(first))
            numbers = list(range(len(first)))
            self._send(FilledPages(Page(group, ()), numbers, numbers, (), first[:, 0].tolist()))
            self._newest = group, self._channel.learned_version

    def take_sample(self) -> dict[str, Any] | None:
        """A group as JSON: ids, log-probabilities and ages of its tokens, and its rewards."""
        newest, self._newest = self._newest, None
        if newest is None:
            return None
        group, version = newest
        sizes = np.count_nonzero(group.extras.source, axis=1)  # PADDING is 0
        rollouts = []
        for row, size in enumerate(sizes[:_MOST_ROLLOUTS].tolist()):
            own = row, slice(min(size, _MOST_TOKENS))
            log_mu = group.extras.log_mu[own].astype(np.float64)
            rollouts.append(
                {
                    "ids": group.action[own].tolist(),
                    "is_policy": (group.extras.source[own] == POLICY).tolist(),
                    "log_mu": log_mu.round(4).tolist(),
                    "lags": (version - group.version[own]).tolist(),
                    "reward": float(group.timestep.reward[row].sum()),
                    "num_tokens": size,
                    "is_cut": bool(group.timestep.discount[row].all()),
                }
            )
        texts = {"alphabet": self._sizes.alphabet, "end": self._sizes.end}
        return {"version": version, "group": len(sizes), **texts, "rollouts": rollouts}

    # The ledger of tokens.

    def accounts(self, *, at_rest: bool) -> dict[str, int]:
        """Tokens sampled on training slots in this session, by what became of them.

        Of a moment ago if the thread runs.
        """
        return self._token_accounts() if at_rest else self._accounts

    def _token_accounts(self) -> dict[str, int]:
        while self._num_taken < self._count_taken() and self._sent:
            self._num_trained += self._sent.popleft()
            self._num_taken += 1
        generator = self._generators["training"]
        waiting = sum(map(generator.num_open, range(len(self._slots["training"]))))
        waiting += self._groups.num_waiting_tokens + sum(self._sent)
        return {
            "generated_tokens": generator.num_sampled,
            "trained_tokens": self._num_trained,
            "waiting_tokens": waiting,
            "lost_tokens": self._num_lost,
        }


def _joined(steps: list[Pending]) -> Batch:
    # One batch of several steps, in the order of their rows.
    slots = [step.group.slots for step in steps]
    return Batch(
        pending=steps,
        slots=np.concatenate(slots),
        streams=np.concatenate([step.group.streams for step in steps]),
        positions=np.zeros(sum(map(len, slots)), np.int32),
        role=steps[0].group.role,
        oldest_arrival=steps[0].arrival,
        number=0,
        rows=RULE.rows(slots),
    )


def _rules(
    config: Config, num_learning: int, num_acting: int, num_hosts: int, device_bytes: int
) -> Iterator[tuple[object, str, str]]:
    # What a token policy does not do yet, or has no memory for.
    agent, learning, serving = config.agent, config.learning, config.serving
    yield (
        max(num_learning, num_acting, num_hosts) == 1,
        "learning.num_devices",
        "1 for a token policy, on one host and with one inference device",
    )
    row = tree_bytes(jax.eval_shape(lambda: decoder.empty_cache(agent.network, 1)))
    yield (
        (serving.training_slots + serving.evaluation_slots) * row <= device_bytes,
        "serving.training_slots",
        f"at most {device_bytes // row:,}, less serving.evaluation_slots: a KV cache of "
        f"{row / 2**20:,.1f} MiB for each slot has to fit into {device_bytes / 2**30:.1f} GiB (or "
        "lower agent.network.context, or the precision agent.network.dtype)",
    )
    schedules = "asynchronous (on policy with --replay.max-lag-updates 0) or deterministic"
    is_other = learning.schedule != "synchronous"
    yield is_other, "learning.schedule", f"{schedules} for a token policy"
    yield not learning.lag_updates, "learning.lag_updates", "0 for a token policy"
    groups = f"whole groups, a multiple of agent.group ({agent.group})"
    yield learning.batch_sequences % agent.group == 0, "learning.batch_sequences", groups
    # With more, acting would wait for parameters that are not published before the next groups.
    yield (
        learning.publish_every_updates <= (most := 1 + _max_lag(config)),
        "learning.publish_every_updates",
        f"at most {most}, 1 more than the largest policy lag (replay.max_lag_updates, or 0 in "
        "deterministic mode)",
    )


def _max_lag(config: Config) -> int:
    # Groups that are asked, sampled and learned by turns depend on no clock.
    is_timeless = config.learning.schedule == "deterministic"
    return 0 if is_timeless else int(config.replay.max_lag_updates)


def on_tokens(config: Config) -> ActingKind:
    """Turns of token ids are answered by completions; a page is a rollout. Raises ConfigError."""
    agent, learning = config.agent, config.learning
    if not isinstance(config.replay, GroupQueueConfig):
        got = type(config.replay).__name__
        raise ConfigError(f"replay: expected a GroupQueueConfig for a token policy, got a {got}")
    groups_per_update = learning.batch_sequences // agent.group
    plan = GroupPlan(config.seed, agent.group, groups_per_update, _max_lag(config))
    return ActingKind(
        check=lambda *sizes: require(config, _rules(config, *sizes)),
        # A rollout has as many turns as it has: each row counts by itself.
        page_steps=1,
        page=lambda _, __: jax.eval_shape(lambda: Page(padding(agent.network.context), ())),
        page_rows=lambda _: (agent.group,),
        rules=(RULE, RULE),
        at_rest=TOKENS,
        actor=lambda _, spec, __, **own: TokenActor(agent, spec, **own),
        acting=functools.partial(TokenActing, plan=plan),
    )
