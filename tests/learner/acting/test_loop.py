"""Acting: who acts with which parameters, whose actions go where, and what is sent on to learning.

Hub and programs are real; the agent says which parameters and which row it acted for.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from learner.acting.act_step import ActPrograms, build_act_programs, example_page
from learner.acting.actor import Actor, BatchShapes
from learner.acting.evaluator import Episode, Evaluator, Score
from learner.acting.loop import Acting, EpisodeTracker, seconds_owed
from learner.report.json_lines import LineReader, parsed
from learner.report.metrics import Metrics
from learner.runtime.channel import (
    ActorLearnerChannel,
    RateLimiter,
    VersionedParams,
)
from learner.serving.batching import Pending, free_running
from learner.serving.core import Serving
from learner.serving.hub import Hub
from learner.serving.leases import Group, Lease, SlotTable
from seedrl.agents.agent import ActOutput, Agent
from seedrl.agents.window import WindowSpec
from seedrl.config import EnvironmentConfig, EvaluationConfig
from seedrl.replay.rate_limiter import RatioLimiter
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec
from seedrl.types import Array, StepType, TimeStep, Tree
from seedrl.wire.payload import ActionLayout
from seedrl.wire.seedrl_pb2 import Hello
from tests.learner.report.event_files import scalars

FIRST, MID, LAST = StepType.FIRST, StepType.MID, StepType.LAST
SPEC = EnvSpec(ArraySpec((), "int32"), DiscreteSpec(100))
PAGE_STEPS = 2
# Two training slots in a group each, and an evaluation slot.
TRAINING, EVALUATION = (0, 1), 2


def _act(params: Tree, carry: Tree, step: TimeStep, epsilon: Array, key: Array) -> ActOutput:
    return ActOutput(10 * params + step.observation, carry, ())


AGENT = Agent(
    window=WindowSpec(0, 1, 1, 2),
    init=lambda key: jnp.int32(0),
    initial_carry=lambda size: (),
    act=_act,
    exploration=lambda size: np.zeros(size),
    evaluation_exploration=0.0,
    init_state=lambda *_: None,  # type: ignore[arg-type, return-value]
    update=lambda *_: None,  # type: ignore[arg-type, return-value]
)


class Peer:
    """Takes the place of an env server's connection: keeps the actions that are sent to it."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.send_actions = self.sent.extend

    def end(self, error: object) -> None:
        """Nothing has to be ended."""


class World(NamedTuple):
    """Acting with one env server of three environments, in groups of one."""

    acting: Acting
    hub: Hub
    lease: Lease
    channel: ActorLearnerChannel

    def learn(self, number: int) -> None:
        """Parameters and version become `number`."""
        self.channel.params = [VersionedParams(jnp.int32(number), number, 1000 * number)]

    def play(self, sequence: int, kind: StepType, observations: dict[int, int]) -> dict[int, int]:
        """Sends a step of some groups; the actions that come back, by group."""
        for number, observation in observations.items():
            timestep = TimeStep(
                np.array([kind], np.uint8),
                np.array([0 if kind == FIRST else 1], np.float32),
                np.ones(1, np.float32),
                np.array([observation], np.int32),
            )
            self.hub.deliver([Pending(self.lease.groups[number], sequence, timestep, 0.0)])
        for _ in observations:
            self.acting.run_once()
        answers = map(ActionLayout(SPEC.action, 1).unpack, map(memoryview, self.lease.holder.sent))
        found = {header.group: int(actions[0]) for header, actions in answers}
        self.lease.holder.sent.clear()
        return found


@pytest.fixture(scope="module")
def programs() -> ActPrograms:
    page = example_page(AGENT, SPEC, PAGE_STEPS)
    return build_act_programs(AGENT, page, num_training=2, num_slots=3)


@pytest.fixture
def world(programs: ActPrograms, tmp_path: Path) -> Iterator[World]:
    metrics = Metrics(tmp_path)
    slots = SlotTable(training=2, evaluation=1, seed=3)
    serving = Serving(slots, page_steps=PAGE_STEPS, rule=free_running(0.0))
    hub = Hub(serving, EnvironmentConfig(id="Some-v0"))
    channel = ActorLearnerChannel(
        RateLimiter(RatioLimiter(replay_ratio=1.0, batch_steps=1, tolerance_updates=100.0)),
        [VersionedParams(jnp.int32(1), 1, 1000)],
        wake_acting=hub.wake,
    )
    shapes = BatchShapes(SPEC, num_training=2, num_evaluation=1)
    acting = Acting(
        hub=hub,
        actor=Actor(
            programs,
            shapes,
            programs.init(jax.random.PRNGKey(0)),
            lambda _: np.zeros(3, np.float32),
        ),
        channel=channel,
        evaluator=Evaluator(EvaluationConfig(interval_steps=1, episodes=2), 0.0),
        metrics=metrics,
        poll_seconds=0.0,
    )
    lease = hub.admit(Peer(), "peer", Hello(num_envs=3, num_groups=2))
    hub.ready(lease, SPEC)
    yield World(acting, hub, lease, channel)
    metrics.close()


def test_evaluation_keeps_its_parameters_for_a_round_while_training_takes_the_newest(
    world: World,
) -> None:
    everyone = {0: 0, 1: 0, 2: 0}
    assert world.play(0, FIRST, everyone) == {0: 10, 1: 10, 2: 10}
    world.learn(2)
    assert world.play(1, LAST, everyone) == {0: 20, 1: 20, 2: 10}
    assert world.play(2, FIRST, everyone) == {0: 20, 1: 20, 2: 10}
    world.learn(3)
    # The second episode of the round ends, and the next round is that of the newest.
    assert world.play(3, LAST, everyone) == {0: 30, 1: 30, 2: 10}
    assert [played.updates for played in world.acting.rounds] == [1]
    assert world.play(4, FIRST, everyone) == {0: 30, 1: 30, 2: 30}


def test_a_score_belongs_to_the_step_of_its_parameters_wherever_it_is_written(
    world: World, tmp_path: Path
) -> None:
    for sequence, kind in enumerate((FIRST, MID, LAST, FIRST, MID, LAST)):
        world.play(sequence, kind, {2: 0})
        world.learn(sequence + 2)
    acting = world.acting
    (played,) = acting.rounds
    assert (played.updates, played.env_steps, played.ended_env_steps) == (1, 1000, 0)
    assert acting.best_score is not None and acting.best_score.frozen.env_steps == 1000
    assert not (tmp_path / "metrics.jsonl").read_text()  # acting waits for no disk
    acting._metrics.write()
    (line,) = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    assert (line["env_steps"], line["ended_env_steps"], line["mean_length"]) == (1000, 0, 2.0)
    values = acting._metrics.flush(env_steps=7000, updates=7)
    assert not [name for name in values if name.startswith(("return/ev", "length/ev"))]
    (file,) = (tmp_path / "tb").iterdir()
    points = {tag: step for step, found in scalars(file) for tag in found}
    assert (points["return/evaluation"], points["length/evaluation"]) == (1000, 1000)
    assert points["balance/updates"] == 7000


def test_a_round_of_a_million_episodes_is_a_line_that_readers_accept(
    world: World, tmp_path: Path
) -> None:
    """One of 100,000 was too long for them, and its score was lost."""
    acting, frozen = world.acting, world.channel.params[0]
    for number in (10_000, 1_000_000):
        episodes = (Episode(-12345.678901),) * number
        acting._report(Score(frozen, episodes), was_confirming=False)
    acting._metrics.write()
    few, many = [parsed(line) for line in LineReader(tmp_path / "metrics.jsonl").read()[0]]
    assert few["returns"] == [-12345.678901] * 10_000
    assert many["mean_return"] == pytest.approx(-12345.678901) and many["episodes"] == 1_000_000


def test_the_last_parameters_are_played_while_training_rests(world: World) -> None:
    world.acting.totals.total_steps = 0
    world.learn(5)
    world.channel.last = world.channel.params
    assert world.play(0, FIRST, {2: 0}) == {2: 50}
    assert world.acting.run_once() is None


def test_an_env_server_owes_one_step_after_another(world: World) -> None:
    first, second, _ = world.lease.groups
    nothing = TimeStep(*[np.zeros(0, np.uint8)] * 4)

    def arrived(group: Group, answered: float, at: float) -> Pending:
        group.answered_seconds = answered
        return Pending(group, 0, nothing, at)

    # 2 s for the one, and from its arrival on 3 s for the other, asked for at the same time.
    assert seconds_owed([arrived(first, 10.0, 12.0), arrived(second, 10.0, 15.0)]) == ([2, 3], [3])
    # From 15 on, though it was answered at 14; then it rested until 20.
    assert seconds_owed([arrived(first, 14.0, 18.0), arrived(second, 20.0, 20.5)]) == ([3, 0.5], [])
    # Of another role, acted on later.
    assert seconds_owed([arrived(first, 19.0, 20.25)]) == ([0], [0])


def test_the_time_of_a_step_is_a_mean_over_steps_whatever_their_batches(world: World) -> None:
    training, clock = world.lease.groups[:2], 100.0
    for sequence, seconds in enumerate(([1.0, 1.0], [4.0])):
        for group, own in zip(training, seconds, strict=False):
            group.answered_seconds, clock = clock, clock + own
            kind = np.array([MID if sequence else FIRST], np.uint8)
            numbers = np.zeros(1, np.float32), np.ones(1, np.float32), np.zeros(1, np.int32)
            world.hub.deliver([Pending(group, sequence, TimeStep(kind, *numbers), clock)])
        world.acting.run_once()
    values = world.acting._metrics.flush(env_steps=0, updates=0)
    assert values["env_step_ms"] == pytest.approx(2000.0)


def test_a_full_page_is_sent_once_with_its_stream_and_the_versions_that_acted(
    world: World,
) -> None:
    world.play(0, FIRST, {0: 7, 1: 4})
    assert not len(world.channel.pages)
    world.learn(2)
    world.play(1, MID, {0: 8, 1: 5})
    filled = world.channel.pages.get()
    assert filled is not None and world.channel.pages.get() is None
    groups = world.lease.groups
    names = {int(group.slots[0]): int(group.streams[0]) for group in groups}
    assert names.keys() == {*TRAINING, EVALUATION}
    assert list(filled.streams) == [names[slot] for slot in filled.slots]
    assert sorted(filled.slots) == list(TRAINING)
    steps = filled.pages.steps
    by_slot = dict(zip(filled.slots, np.asarray(steps.timestep.observation).tolist(), strict=False))
    assert by_slot == {0: [7, 8], 1: [4, 5]}
    np.testing.assert_array_equal(steps.version, [[1, 2], [1, 2]])
    assert filled.versions == [1, 1]


def test_environment_steps_are_the_rows_of_training_slots_but_first(world: World) -> None:
    for sequence, kind in enumerate((FIRST, MID, LAST, FIRST, MID)):
        world.play(sequence, kind, {0: 0, 1: 0, 2: 0})
    assert world.acting.training_steps == 3 * len(TRAINING)


# --- returns of episodes, per slot ---


def _observe(
    tracker: EpisodeTracker, rows: list[tuple[int, StepType, float]]
) -> list[tuple[float, ...]]:
    slots, step_types, rewards = zip(*rows, strict=True)
    return [
        (slot, float(tracker.returns[slot]), int(tracker.lengths[slot]))
        for slot in tracker.observe(
            np.array(slots, np.int32),
            np.array(step_types, np.uint8),
            np.array(rewards, np.float32),
        )
    ]


def test_every_slot_has_its_own_sum_and_rows_come_in_any_order() -> None:
    tracker = EpisodeTracker(3)
    _observe(tracker, [(2, FIRST, 0.0), (0, FIRST, 0.0)])
    _observe(tracker, [(0, MID, 1.0), (2, MID, 10.0)])
    _observe(tracker, [(2, MID, 10.0)])
    ended = _observe(tracker, [(2, LAST, 10.0), (1, FIRST, 0.0), (0, LAST, 1.0)])
    assert ended == [(2, 30.0, 3), (0, 2.0, 2)]


def test_the_next_episode_begins_at_zero_also_after_a_cut() -> None:
    tracker = EpisodeTracker(1)
    for step_type, reward in [(FIRST, 0.0), (LAST, 5.0), (FIRST, 0.0), (MID, 100.0), (FIRST, 0.0)]:
        _observe(tracker, [(0, step_type, reward)])
    assert _observe(tracker, [(0, LAST, 1.0)]) == [(0, 1.0, 1)]


def test_small_rewards_are_not_lost_in_large_returns() -> None:
    tracker = EpisodeTracker(1)
    _observe(tracker, [(0, FIRST, 0.0)])
    _observe(tracker, [(0, MID, 2.0**25)])  # float32 has no odd integers up there
    assert _observe(tracker, [(0, LAST, 1.0)]) == [(0, 2.0**25 + 1, 2)]


def test_exploration_is_that_of_the_steps_of_the_run_so_far(world: World) -> None:
    asked: list[int] = []

    def exploration_at(env_steps: int) -> np.ndarray:
        asked.append(env_steps)
        return np.zeros(3, np.float32)

    world.acting._actor._exploration_at = exploration_at
    world.acting.totals.steps[0] = 700  # of earlier sessions
    for sequence, kind in enumerate((FIRST, MID, LAST, FIRST)):
        world.play(sequence, kind, {0: 1})
    assert asked == [700, 700, 701, 702]
