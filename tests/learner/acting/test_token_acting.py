"""Groups of rollouts: whole, in order, and never older than their bound.

Hub, generators and environments are real; learning only takes groups and counts.
"""

import contextlib
import json
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from envs_server.build import Recipe, build
from envs_server.envs import token_tasks
from envs_server.failures import Failures
from envs_server.groups import EnvGroup
from envs_server.tokens import TokenGym
from learner.acting.evaluator import Evaluator, Score
from learner.acting.loop import Totals
from learner.acting.token_acting import RULE, TokenActing, TokenActor
from learner.acting.token_groups import (
    GroupPlan,
    Groups,
    held_out_seed,
    question_seed,
    training_seeds,
)
from learner.evaluate import _actor, _Player
from learner.report.metrics import Metrics
from learner.runtime.channel import ActorLearnerChannel, RateLimiter, VersionedParams
from learner.serving.batching import Pending, lock_step
from learner.serving.core import Serving
from learner.serving.hub import Hub
from learner.serving.leases import Lease, SlotTable
from learner.serving.ledger import TOKENS, residues
from seedrl.agents.grpo import GRPOConfig
from seedrl.agents.token_agent import ENVIRONMENT, POLICY, padding
from seedrl.config import EnvironmentConfig, EvaluationConfig
from seedrl.networks.decoder import DecoderConfig
from seedrl.replay.rate_limiter import QueueLimiter
from seedrl.specs import MOST_SEED, EnvSpec
from seedrl.token_env import TokenEnv
from seedrl.types import NEXT, StepType
from seedrl.wire.contract import MINOR, NEXT_MINOR
from seedrl.wire.framing import receive_from_env_server
from seedrl.wire.learner_payload import StepReader, sequence_of
from seedrl.wire.seedrl_pb2 import Hello
from tests.seedrl.networks.decoder_oracle import random_params


@pytest.mark.parametrize(("max_lag", "publish_every"), [(0, 1), (1, 2), (2, 1), (3, 3)])
def test_the_lag_is_never_above_its_bound_and_nothing_waits_for_ever(
    max_lag: int, publish_every: int
) -> None:
    # Acting, learning and publishing in any order, with slots of any speed, as threads do.
    random = np.random.default_rng(max_lag)
    plan = GroupPlan(run_seed=0, group=2, groups_per_update=3, max_lag_updates=max_lag)
    groups, playing = Groups(plan), dict[int, int]()
    queue: list[int] = []  # versions
    learned = published = 0
    in_flight = False
    largest = updates = 0
    for _ in range(20_000):
        match random.integers(4):
            case 0 if len(playing) < 11:
                waiting = len(queue) // plan.group
                number = groups.take(waiting=waiting, learned=learned, acting=published)
                if number is not None:
                    playing[number] = published
            case 1 if playing:
                number = int(random.choice(list(playing)))
                if random.random() < 0.1:
                    del playing[number]
                    groups.lost(number)
                    continue
                rollout = padding(1)._replace(version=np.array([playing.pop(number)]))
                groups.finished(number, rollout)
                while (group := groups.pop()) is not None:
                    queue += group.version[:, 0].tolist()
            case 2 if not in_flight and len(queue) >= 6:
                batch, queue = queue[:6], queue[6:]
                largest = max(largest, *(learned - version for version in batch))
                learned, in_flight, updates = learned + 1, True, updates + 1
            case 3 if in_flight:
                in_flight = False
                if learned % publish_every == 0:
                    published = learned
    assert largest <= max_lag
    assert updates > 100


def test_questions_of_evaluation_are_held_out() -> None:
    training = {question_seed(1, group) for group in range(2000)} | set(training_seeds(1, 2000))
    held_out = {held_out_seed(1, episode) for episode in range(2000)}
    assert len(training) == 4000 and len(held_out) == 2000
    assert max(training) < min(held_out) <= max(held_out) <= MOST_SEED
    assert question_seed(1, 7) == question_seed(1, 7) != question_seed(2, 7)


_TASK = {"longest": 2, "shortest": 1, "letters": 2}
_CONTEXT = 8
_PLAN = GroupPlan(run_seed=5, group=2, groups_per_update=2, max_lag_updates=1)


class Reverse(TokenEnv):
    """As the factory makes it, for tests that change it."""

    def __init__(self, **arguments: Any) -> None:
        self._env = token_tasks.reverse(**arguments)
        self.tokens, self.longest_turn = self._env.tokens, self._env.longest_turn
        self.longest_completion = self._env.longest_completion

    def reset(self, seed: int) -> np.ndarray:
        return self._env.reset(seed)

    def step(self, ids: np.ndarray) -> tuple[np.ndarray | None, float]:
        return self._env.step(ids)


class Endless(Reverse):
    """Pays for each answer, and asks again for ever."""

    def step(self, ids: np.ndarray) -> tuple[np.ndarray | None, float]:
        return self.tokens.encode("a"), 0.25


class Fragile(Reverse):
    """Some questions cannot be asked at the first attempt."""

    attempts = 0

    def reset(self, seed: int) -> np.ndarray:
        Fragile.attempts += 1
        if Fragile.attempts % 5 == 0:
            raise RuntimeError("no question for now")
        return super().reset(seed)


class Hasty(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Ends the episode at every step, also at the one that asks the question."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(TokenGym(token_tasks.reverse(**arguments)))

    def step(self, action: Any) -> Any:
        observation, reward, _, truncated, info = self.env.step(action)
        return observation, reward, True, truncated, info


class Peer:
    """An env server in this thread: steps its environments as soon as it gets their actions."""

    def __init__(
        self,
        hub: Hub,
        num_envs: int,
        factory: Any = token_tasks.reverse,
        minor: int = MINOR,
        num_groups: int = 0,
    ):
        self._hub, self.hold = hub, False
        self._held: list[bytes] = []
        self.kinds: Counter[tuple[str, int]] = Counter()  # of its rows, by role
        # What it was told to ask, plus 1, by group; and what evaluation answered to it.
        self._asked: dict[int, int] = {}
        self.answers: dict[int, list[tuple[int, ...]]] = defaultdict(list)
        hello = Hello(num_envs=num_envs, num_groups=num_groups or num_envs, minor=minor)
        self.lease: Lease = hub.admit(self, "peer", hello)
        recipe = Recipe("reverse", _TASK, (), factory)
        self._groups = []
        for index, group in enumerate(self.lease.groups):
            size = len(group.slots)
            environments = build(recipe, "auto", size, failures=Failures(size, 10**6))
            self._groups.append(EnvGroup(index, environments, group.seeds))
        self._readers = [
            StepReader(own.spec, len(group.slots))
            for own, group in zip(self._groups, self.lease.groups, strict=True)
        ]
        hub.ready(self.lease, self._groups[0].spec)
        for index, group in enumerate(self._groups):
            self._deliver(index, group.first())

    def send_actions(self, payloads: list[bytes]) -> None:
        self._held += payloads
        while self._held and not self.hold:
            payload = self._held.pop(0)
            index = int.from_bytes(payload[:4], "little")
            self._note(index, self._groups[index].action_layout.unpack(memoryview(payload))[1])
            self._deliver(index, self._groups[index].step(memoryview(payload)))

    def _note(self, index: int, actions: np.ndarray) -> None:
        if self.lease.groups[index].role == "evaluation":
            for seed, number, *ids in actions.tolist():  # groups of one
                self._asked[index] = seed or self._asked.get(index, 0)
                if number:
                    self.answers[self._asked[index]].append(tuple(ids[:number]))

    def _deliver(self, index: int, message: Any) -> None:
        data = receive_from_env_server(message.message)
        assert isinstance(data, memoryview)
        timestep = self._readers[index].unpack(bytes(data))
        group = self.lease.groups[index]
        self.kinds.update((group.role, kind) for kind in timestep.step_type.tolist())
        self._hub.deliver([Pending(group, sequence_of(data), timestep, 0.0)])

    def end(self, error: object) -> None:
        """It sends nothing more."""
        self.hold = True


class World(NamedTuple):
    """Acting, and all that it needs but learning."""

    acting: TokenActing
    hub: Hub
    channel: Any
    params: Any
    taken: list[Any]  # groups that updates have taken, as pages

    def learn(self) -> int:
        """Takes an update if one is due; the largest lag in it, -1 without."""
        while (item := self.channel.pages.get()) is not None:
            self.taken.append((item.pages, self.channel.learned_version))
            self.channel.limiter.holds([len(item.streams)])
        waiting = self.taken[self.channel.learned_version * 2 :]
        if len(waiting) < 2:
            return -1
        version = self.channel.learned_version
        largest = version - min(pages.steps.version.min() for pages, _ in waiting[:2])
        self.channel.learned_version = version + 1
        self.channel.limiter.took()
        self.channel.params = [VersionedParams(self.params, version + 1, version + 1)]
        return int(largest)


_NETWORK = DecoderConfig(
    vocabulary=4, layers=1, width=8, heads=2, kv_heads=1, ffn=8, context=_CONTEXT
)


@contextlib.contextmanager
def _world(
    folder: Path,
    evaluation: dict[str, Any] | None = None,
    plan: GroupPlan = _PLAN,
    evaluating: int = 2,
) -> Iterator[World]:
    metrics, sizes = Metrics(folder), token_tasks.reverse(**_TASK).spec
    evaluation = {"interval_steps": 1, "episodes": 3, **(evaluation or {})}
    slots = SlotTable(training=6, evaluation=evaluating, seed=3)
    hub = Hub(Serving(slots, page_steps=1, rule=RULE), EnvironmentConfig(id="Some-v0"))
    params = jax.tree.map(jnp.asarray, random_params(_NETWORK))
    limiter = QueueLimiter(batch_per_device=4, num_devices=1, ahead_updates=2)
    first = [VersionedParams(params, 0, 0)]
    channel = ActorLearnerChannel(RateLimiter(limiter), first, hub.wake)
    actor = TokenActor(
        GRPOConfig(network=_NETWORK, group=_PLAN.group),
        EnvSpec(sizes.turn, sizes),
        slot_ranges=slots.ranges,
        exploration=np.ones(8, np.float32),
        key=jax.random.PRNGKey(0),
        device=jax.devices()[0],
    )
    acting = TokenActing(
        actor=actor,
        plan=plan,
        hub=hub,
        channel=channel,
        evaluator=Evaluator(EvaluationConfig(**evaluation), 0.0),
        metrics=metrics,
        totals=Totals(),
        poll_seconds=0.0,
    )
    try:
        yield World(acting, hub, channel, params, [])
    finally:
        metrics.close()


def _assert_each_group_is_right(world: World) -> None:
    for number, (pages, _) in enumerate(world.taken):
        asked = pages.steps.extras.source == ENVIRONMENT
        questions = {tuple(ids[own]) for ids, own in zip(pages.steps.action, asked, strict=True)}
        env = token_tasks.reverse(**_TASK)
        assert questions == {tuple(env.reset(question_seed(_PLAN.run_seed, number)))}
        # An answer that ends by itself ends the episode, one that was cut does not.
        for ids, source, discounts in zip(
            pages.steps.action,
            pages.steps.extras.source,
            pages.steps.timestep.discount,
            strict=True,
        ):
            last = np.flatnonzero(source == POLICY)[-1]
            is_end = np.arange(_CONTEXT) == last
            assert discounts.tolist() == np.where(is_end, ids[last] != env.tokens.end, 1).tolist()


def test_the_caches_of_all_slots_count_as_memory_of_acting(tmp_path: Path) -> None:
    slots, token = 8, _NETWORK.layers * _NETWORK.width * _NETWORK.kv_heads // _NETWORK.heads
    # Keys and values as float32, and the length of each row.
    expected = slots * (2 * 4 * _NETWORK.context * token + 4)
    with _world(tmp_path) as world:
        assert world.acting.state_bytes == expected


@pytest.mark.parametrize("minor", [NEXT_MINOR - 1, NEXT_MINOR])
def test_env_servers_come_and_go_and_every_token_is_accounted_for(
    tmp_path: Path, minor: int
) -> None:
    random = np.random.default_rng(0)
    with _world(tmp_path) as world:
        peers = deque(Peer(world.hub, 4, minor=minor) for _ in range(2))
        taken: deque[int] = deque()
        world.acting._count_taken = lambda: 4 * world.channel.learned_version
        for turn in range(200):
            if turn % 60 == 30:
                peers[0].hold = True  # answers are lost with it
            if turn % 60 == 40:
                world.hub.leave(peers.popleft().lease, None)
                world.acting.run_once()  # what was dispatched is let go
                peers.append(Peer(world.hub, 4, minor=minor))
            world.acting.run_once()
            if random.random() < 0.3:
                taken.append(world.learn())
        assert 0 <= max(taken) <= _PLAN.max_lag_updates
        assert world.channel.learned_version > 8
        assert (peers[0].kinds["training", NEXT] > 0) == (minor == NEXT_MINOR)
        _assert_each_group_is_right(world)
        accounts = {**world.hub.ledger(), **world.acting.accounts(at_rest=True)}
        assert residues(accounts, TOKENS) == []
        for account in ("generated_tokens", "trained_tokens", "lost_tokens"):
            assert accounts[account] > 0, accounts
        # The newest group is shown once.
        sample = json.loads(json.dumps(world.acting.take_sample()))
        assert world.acting.take_sample() is None
        world.learn()  # fetches it, too
        steps = world.taken[-1][0].steps
        for number, shown in enumerate(sample["rollouts"]):
            size = shown["num_tokens"]
            source = steps.extras.source[number, :size]
            assert shown["ids"] == steps.action[number, :size].tolist()
            assert shown["is_policy"] == (source == POLICY).tolist()
            np.testing.assert_allclose(
                shown["log_mu"], steps.extras.log_mu[number, :size], atol=1e-4
            )
            lags = sample["version"] - steps.version[number, :size]
            assert shown["lags"] == lags.tolist() and 0 <= min(lags) <= max(lags) <= 1
            assert shown["reward"] == steps.timestep.reward[number].sum()
        assert (sample["group"], sample["alphabet"], sample["end"]) == (2, "ab=", 3)
        # Rounds have ended meanwhile, by the parameters of their start.
        assert len(world.acting.rounds) > 2


def test_an_answer_asks_the_next_question(tmp_path: Path) -> None:
    # With room for far more groups than are played: no slot waits for a question.
    plan = _PLAN._replace(max_lag_updates=100)
    with _world(tmp_path, plan=plan) as world:
        peer = Peer(world.hub, 8)
        for _ in range(100):
            world.acting.run_once()
        # After a first question each rollout costs a message each way.
        kinds = {kind: peer.kinds["training", kind] for kind in (*StepType, NEXT)}
        assert kinds.pop(NEXT) > 100 and kinds == {0: 6, 1: 6, 2: 0}
        # Nothing of an episode is counted in the next one.
        measured = world.acting._tally.measured
        assert set(measured["length/training"]) == {1}
        assert max(measured["return/training"]) <= 1
        # Evaluation asks as it did: each of its rounds has its own questions.
        assert peer.kinds["evaluation", NEXT] == 0 < peer.kinds["evaluation", StepType.LAST]
        while world.learn() >= 0:
            pass
        _assert_each_group_is_right(world)
        assert residues(world.acting.accounts(at_rest=True), TOKENS) == []


def test_an_environment_that_is_built_again_asks_no_question_of_its_own(tmp_path: Path) -> None:
    with _world(tmp_path) as world:
        peer = Peer(world.hub, 8, Fragile)
        for _ in range(100):
            world.acting.run_once()
            world.learn()
        assert world.channel.learned_version > 10 and peer.kinds["training", NEXT] > 10
        _assert_each_group_is_right(world)
        accounts = world.acting.accounts(at_rest=True)
        assert accounts["lost_tokens"] > 0 and residues(accounts, TOKENS) == []


def test_an_episode_that_ends_without_an_answer_is_no_rollout(tmp_path: Path) -> None:
    with _world(tmp_path) as world:
        Peer(world.hub, 8, Hasty)
        for _ in range(100):
            world.acting.run_once()
            world.learn()
        assert world.channel.learned_version > 5
        _assert_each_group_is_right(world)


def test_an_episode_ends_where_no_answer_has_room(tmp_path: Path) -> None:
    with _world(tmp_path) as world:
        Peer(world.hub, 8, Endless)
        for _ in range(150):
            world.acting.run_once()
            world.learn()
        assert world.channel.learned_version > 5 and len(world.acting.rounds) > 2
        for pages, _ in world.taken:
            steps = pages.steps
            assert steps.timestep.discount.all()  # cut by length
            # Each answer was paid once, on its last token; the last one fills the context, or
            # leaves no room for the next turn.
            ends = (steps.extras.source[:, :-1] == POLICY) & (steps.extras.source[:, 1:] != POLICY)
            is_full = steps.extras.source[:, -1] == POLICY
            returns = steps.timestep.reward.sum(axis=1)
            assert returns.tolist() == (0.25 * (ends.sum(axis=1) + is_full)).tolist()
        accounts = {**world.hub.ledger(), **world.acting.accounts(at_rest=True)}
        assert accounts["lost_tokens"] == 0 and residues(accounts, TOKENS) == []


@pytest.mark.gate  # training's end: above; the loop that evaluates: tests/learner/test_evaluate.py
def test_an_evaluation_ends_an_episode_where_training_does() -> None:
    sizes = token_tasks.reverse(**_TASK).spec
    spec = EnvSpec(sizes.turn, sizes)
    slots = SlotTable(training=0, evaluation=3, seed=3)
    hub = Hub(Serving(slots, page_steps=1, rule=lock_step()), EnvironmentConfig(id="Some-v0"))
    Peer(hub, 3, Endless)
    agent = GRPOConfig(network=_NETWORK, group=2).build(spec)
    frozen = VersionedParams(jax.jit(agent.init)(jax.random.key(0)), 0)
    actor = _actor(agent, spec, 3, exploration=1.0, seed=0)
    player = _Player(hub, actor, frozen, lambda: None, 100, action=sizes)
    episodes = player.play(9).episodes
    assert len(episodes) == 9 and not any(each.is_cut for each in episodes)
    # Each answer was paid. The context has room for few of them, after a question of 2 or 3 tokens.
    assert all(each.episode_return == 0.25 * each.length for each in episodes)
    assert 1 <= min(each.length for each in episodes) <= max(each.length for each in episodes) <= 3


def test_without_lag_groups_do_not_depend_on_who_plays_them(tmp_path: Path) -> None:
    # In whichever slot and next to whichever others: to the bit, versions and rewards, too.
    found, random = [], np.random.default_rng(0)
    for sizes in ((8,), (3, 5)):
        plan = _PLAN._replace(max_lag_updates=0)
        with _world(tmp_path / str(sizes), plan=plan) as world:
            peers = [Peer(world.hub, size) for size in sizes]
            while len(world.taken) < 24:
                for peer in peers[1:]:
                    peer.hold = random.random() < 0.7
                    peer.send_actions([])  # it takes what it has held
                world.acting.run_once()
                assert world.learn() <= 0
            found.append([pages for pages, _ in world.taken[:24]])
    jax.tree.map(np.testing.assert_array_equal, *found)


@pytest.mark.parametrize("max_lag", [0, 1])
@pytest.mark.parametrize("factory", [token_tasks.reverse, Endless])
def test_environments_that_were_offered_as_one_group_never_wait_for_each_other(
    tmp_path: Path, max_lag: int, factory: Any
) -> None:
    """Six training slots, and questions for fewer: in one group none would ever be answered."""
    with _world(tmp_path, plan=_PLAN._replace(max_lag_updates=max_lag)) as world:
        peers = [Peer(world.hub, size, factory, num_groups=1) for size in (5, 3)]
        world.acting._poll_seconds, next_batch = 1.0, world.hub.next_batch

        def next_at_once(roles: Any, timeout: float, device: int) -> Any:
            # Nothing that is ready to be sent waits for what may only come after it.
            assert not (timeout and world.acting._answered)
            return next_batch(roles, 0.0, device)

        world.hub.next_batch = next_at_once  # type: ignore[method-assign]
        for _ in range(200):
            world.acting.run_once()
            assert world.learn() <= max_lag
        assert world.channel.learned_version > 10
        if factory is token_tasks.reverse:
            _assert_each_group_is_right(world)
        assert all(len(group.slots) == 1 for peer in peers for group in peer.lease.groups)
        accounts = {**world.hub.ledger(), **world.acting.accounts(at_rest=True)}
        assert residues(accounts, TOKENS) == []


def test_a_slot_that_answers_a_question_twice_samples_twice(tmp_path: Path) -> None:
    # Eight answers by two slots: pass@k is of independent ones.
    evaluation = {"episodes": 8, "rollouts_per_question": 8, "actions": "stochastic"}
    with _world(tmp_path, evaluation) as world:
        peer = Peer(world.hub, 8)
        while not world.acting.rounds:
            world.acting.run_once()
        answers = peer.answers[held_out_seed(_PLAN.run_seed, 0) + 1]
        assert len(answers) == 8 and len(set(answers)) > 2


def test_a_run_may_have_no_slots_that_evaluate(tmp_path: Path) -> None:
    with _world(tmp_path, evaluating=0) as world:
        Peer(world.hub, 6)
        while not world.channel.learned_version:
            world.acting.run_once()
            world.learn()


def test_a_slot_that_has_no_share_of_a_round_is_asked_nothing(tmp_path: Path) -> None:
    """It answered questions for nothing, and the next round had to wait for its last one."""
    with _world(tmp_path, {"episodes": 1}) as world:
        peer = Peer(world.hub, 8)  # of which two evaluate
        while len(world.acting.rounds) < 3:
            world.acting.run_once()
            world.learn()
        assert peer.kinds["evaluation", StepType.LAST] == 3


def test_each_round_asks_all_of_its_questions_and_counts_all_of_their_answers(
    tmp_path: Path,
) -> None:
    # Every round reaches the target, so that its parameters are confirmed.
    fields = {"episodes": 4, "rollouts_per_question": 2, "target_return": -1.0}
    fields |= {"confirm_episodes": 4}
    with _world(tmp_path, fields) as world:
        peers = [Peer(world.hub, 4) for _ in range(2)]
        random = np.random.default_rng(0)
        scores, report = [], world.acting._report

        def keep(score: Score, was_confirming: bool) -> None:
            last_first = sorted(score.episodes, key=lambda each: -each.question)
            episodes = (each._replace(episode_return=each.question % 2) for each in last_first)
            score = score._replace(episodes=tuple(episodes))
            scores.append((score, was_confirming))
            report(score, was_confirming)
            world.acting.evaluator.confirmed = None  # the run would end here

        world.acting._report = keep  # type: ignore[method-assign]
        for _ in range(300):
            # Steps of either may be under way when a round ends.
            for peer in peers:
                peer.hold = random.random() < 0.7
                peer.send_actions([])  # it takes what it has held
            world.acting.run_once()
            world.learn()
        asked = [
            (is_confirmation, Counter(each.question for each in score.episodes))
            for score, is_confirmation in scores
        ]
        rounds = (False, {0: 2, 1: 2}), (True, {2**20: 2, 2**20 + 1: 2})
        assert len(asked) > 4 and asked == [rounds[i % 2] for i in range(len(asked))]
        assert scores[0][0].pass_at_k().keys() == {"pass_at_1", "pass_at_2"}
        world.acting._metrics.write()
        lines = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
        line = next(line for line in lines if line["kind"] == "evaluation")
        assert line["metrics"] == pytest.approx(scores[0][0].pass_at_k())
        # By question: rounds can be compared question by question.
        assert line["returns"] == [0.0, 0.0, 1.0, 1.0]
