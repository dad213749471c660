from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from learner.learning.device_mapping import MappedPrograms
from learner.learning.learn_step import LearnerState, packed
from learner.learning.loop import Learning
from learner.learning.page_routing import ShardedReplay
from learner.report.metrics import Tally
from learner.runtime.channel import (
    ActorLearnerChannel,
    RateLimiter,
    VersionedParams,
)
from seedrl.replay.experience import Experience
from seedrl.replay.rate_limiter import RatioLimiter


def _counted(skips: list[float]) -> dict[str, float]:
    """What is counted of such updates."""
    return {"skipped_updates": sum(skips), "updates": len(skips) - sum(skips)} if skips else {}


def _learning(
    skips: list[float],
    *,
    is_ready: bool = True,
    publish_every_updates: int = 1,
    lag_updates: int = 0,
    env_steps: list[Any] | None = None,
) -> tuple[Learning, ActorLearnerChannel, Tally]:
    """Learning over a program that applies, or skips, its n-th update as `skips[n]` says."""
    pending = iter(skips)

    def learn(state: LearnerState, replay: Any, draw: Any, steps: Any) -> Any:
        is_skipped = next(pending)
        if env_steps is not None:
            env_steps.append(steps)
        state = state._replace(updates=state.updates + 1 - int(is_skipped))
        return (
            state,
            replay,
            packed(
                {
                    "skipped_updates": jnp.float32(is_skipped),
                    "loss": jnp.float32("nan" if is_skipped else 0.5),
                    # That no minibatch has measured, in every other update.
                    "mismatch_kl": jnp.float32("nan" if state.updates % 2 else 2.0),
                }
            ),
        )

    limiter = RateLimiter(RatioLimiter(replay_ratio=1.0, batch_steps=1, tolerance_updates=100.0))
    limiter.holds([int(is_ready)])
    limiter.acted(50)
    channel = ActorLearnerChannel(limiter, [VersionedParams((), 7)], wake_acting=lambda: None)
    tally = Tally()
    metrics: Any = SimpleNamespace(tally=lambda: tally)
    indices: Any = [
        SimpleNamespace(
            num_sequences=9,
            num_inserted=0,
            has_room=lambda pages: True,
            draw=lambda: (),
            state=dict,
        )
    ]
    memory: Any = jnp.zeros((1, 3))
    unused: Any = None
    experience = Experience(unused, lambda: indices[0], unused)
    learning = Learning(
        programs=MappedPrograms(
            jax.local_devices()[:1],
            jax.local_devices()[:1],
            lambda shard, *_: shard,
            lambda pages, _: pages,
            learn,
            lambda leaf: leaf,
            lambda params: [jax.tree.map(jnp.copy, params)],
            *[lambda *_: None] * 2,
        ),
        state=LearnerState(jnp.zeros(2), (), (), jnp.int32(7), (), jnp.zeros(2, jnp.uint32)),
        replay=ShardedReplay(experience, memory, indices, page_steps=1, most_pages=1),
        channel=channel,
        metrics=metrics,
        publish_every_updates=publish_every_updates,
        lag_updates=lag_updates,
    )
    return learning, channel, tally


def test_versions_follow_the_devices_counter_over_skipped_updates() -> None:
    skips = [0.0, 1.0, 0.0, 1.0, 1.0, 0.0]
    learning, channel, tally = _learning(skips)
    looked_at: list[float] = []
    for _ in skips:
        learning.run_once()
        # What is under way is not published, for acting would wait for it, nor counted yet.
        applied = 7 + looked_at.count(0.0)
        assert channel.params[0].version == learning.updates == applied
        assert channel.learned_version == applied + 1
        assert tally.counted == _counted(looked_at)
        looked_at = skips[: len(looked_at) + 1]
    learning.finish_update()
    assert int(learning._state.updates) == 7 + skips.count(0.0)
    assert learning.updates == int(learning._state.updates)
    assert channel.params[0].version == learning.updates
    assert (learning.num_applied, learning.num_skipped) == (skips.count(0.0), skips.count(1.0))
    assert (*tally.measured["loss"], *tally.measured["mismatch_kl"]) == (0.5, 0.5, 0.5, 2.0, 2.0)


def test_only_every_nth_update_that_counts_is_published() -> None:
    skips = [1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0]
    learning, channel, _ = _learning(skips, publish_every_updates=2)
    published = [channel.params[0]]
    for _ in skips:
        assert learning.run_once()
        learning.finish_update()
        if channel.params[0] is not published[-1]:
            published.append(channel.params[0])
    assert learning.updates == 11
    assert [each.version for each in published] == [7, 8, 10]


@pytest.mark.parametrize(
    ("skips", "versions", "last"),
    [([0.0] * 5, [7, 7, 8, 9, 10], 12), ([0.0, 0.0, 1.0, 0.0], [7, 7, 7, 8], 10)],
)
def test_acting_lags_by_so_many_updates_that_count_but_for_the_last_parameters(
    skips: list[float], versions: list[int], last: int
) -> None:
    learning, channel, _ = _learning(skips, lag_updates=2)
    acted_with = []
    for _ in skips:
        learning.run_once()
        learning.finish_update()
        acted_with.append(channel.params[0].version)
    assert acted_with == versions
    learning.settle()
    assert channel.last[0].version == last


def test_a_restored_replay_lets_what_is_acted_first_count() -> None:
    learning, *_ = _learning([], is_ready=False)
    learning._limiter.acted(30)
    assert learning._limiter.now.counts()["env_steps"] == 30


def test_the_last_parameters_are_handed_over_whatever_the_interval() -> None:
    learning, channel, _ = _learning([0.0, 0.0, 0.0], publish_every_updates=2)
    channel.count_steps = lambda: 1234
    for _ in range(2):
        learning.run_once()
    learning.settle()
    (last,) = channel.last
    assert (last.version, last.env_steps) == (9, 1234)
    # Those that act stay: a run that is resumed goes on with them.
    assert channel.params[0].version == 8
    learning.settle()
    assert channel.last[0] is last and learning.num_applied == 2


def test_a_snapshot_shares_no_memory_with_what_the_next_update_consumes() -> None:
    learning, *_ = _learning([])
    snapshot = learning.snapshot(with_replay=True)
    copies = jax.tree.leaves((snapshot.state, snapshot.replay))
    owned = jax.tree.leaves((learning._state, learning._memory))
    assert len(copies) == len(owned) > 3
    for copy, leaf in zip(copies, owned, strict=True):
        assert not np.shares_memory(copy, np.asarray(leaf))


def test_a_requested_snapshot_is_taken_between_two_updates_with_the_counts_of_then() -> None:
    learning, *_ = _learning([0.0, 0.0])
    learning.count_steps = lambda: 400
    learning.run_once()
    abandoned = learning.request_snapshot(with_replay=False)
    assert abandoned.cancel()
    asked = [learning.request_snapshot(with_replay=flag) for flag in (False, True)]
    assert not any(each.done() for each in asked)
    learning.run_once()  # answers, and then starts an update
    found = [each.result(timeout=0.0) for each in asked]
    assert [bool(len(each.replay)) for each in found] == [False, True]
    assert int(learning._state.updates) == 9
    for each in found:
        assert (int(each.state.updates), each.env_steps) == (8, 400)
        assert each.limiter["taken_steps"] == 1


def test_each_update_learns_the_environment_steps_of_the_run_by_then() -> None:
    seen: list[Any] = []
    learning, _, _ = _learning([0.0, 1.0, 0.0], env_steps=seen)
    steps = iter([100, 164, 2**24 + 64])
    learning.count_steps = lambda: next(steps)
    for _ in range(3):
        learning.run_once()
    assert [(number, str(number.dtype)) for number in seen] == [
        (number, "float32") for number in (100, 164, 2**24 + 64)
    ]
