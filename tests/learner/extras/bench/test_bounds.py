"""The bounds of a run: their arithmetic, and that each side is measured while the other rests."""

import contextlib
import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from learner.cli.bounds import text
from learner.cli.main import main
from learner.extras.bench import bounds
from learner.extras.bench.bounds import Sides, prepared, rates
from learner.extras.bench.system import Interval, System
from learner.extras.bench.workloads import Workload
from seedrl import config_io
from seedrl.agents.impala import ImpalaConfig
from seedrl.agents.ppo import PpoConfig
from seedrl.config import Config, LaunchConfig
from seedrl.networks.config import ActorCriticConfig
from seedrl.replay.queue import QueueConfig
from tests import own_process

SLOTS = 4


@pytest.mark.parametrize(
    ("acting", "learning", "both", "sentence"),
    [
        (6.0, 3.0, 2.4, "Learning binds: the run reaches 80% of the slower side."),
        (3.0, 6.0, 1.5, "Acting binds: the run reaches 50% of the slower side."),
        (4.0, 4.2, 4.0, "Acting and learning bind alike: the run reaches 100% of the slower side."),
    ],
)
def test_the_slower_side_binds(acting: float, learning: float, both: float, sentence: str) -> None:
    # The second round is of a machine half as fast: each round is compared with itself.
    def interval(rate: float, slow: int) -> Interval:
        return Interval(round(1000 * rate), round(125 * rate), slow * 1000.0, {})

    measured = {"acting": acting, "learning": learning, "both": both}
    intervals = {side: [interval(rate, slow) for slow in (1, 2)] for side, rate in measured.items()}
    found = rates(intervals, update_steps=8.0)
    assert found["both"] == pytest.approx((both, both / 2))
    assert found["learning"] == pytest.approx((learning, learning / 2))
    *_, last = text(found, 8.0).splitlines()
    assert last == sentence


def replayed(config: Config) -> Config:
    """Two devices that act in threads of their own, and replay: 16 steps make up for an update."""
    learning = dataclasses.replace(config.learning, batch_sequences=4, num_devices=2)
    return dataclasses.replace(config, learning=learning)


def queued(config: Config) -> Config:
    """A queue, where an update takes 2 sequences of 4 steps and more."""
    network = ActorCriticConfig(torso="mlp", torso_sizes=(4,), core="none")
    return dataclasses.replace(
        config,
        agent=ImpalaConfig(network=network, unroll=4),
        replay=QueueConfig(),
        learning=dataclasses.replace(config.learning, batch_sequences=2),
    )


def synchronous(config: Config) -> Config:
    """One thread that acts and learns in turn."""
    network = ActorCriticConfig(torso="mlp", torso_sizes=(4,), core="none")
    return dataclasses.replace(
        config,
        agent=PpoConfig(network=network, unroll=4),
        replay=QueueConfig(ahead_updates=1),
        learning=dataclasses.replace(
            config.learning, batch_sequences=SLOTS, schedule="synchronous"
        ),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [replayed, *(pytest.param(kind, marks=pytest.mark.gate) for kind in (queued, synchronous))],
)
def test_each_side_is_measured_while_the_other_one_rests(
    tiny: Workload,
    kind: Callable[[Config], Config],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = dataclasses.replace(tiny.config, launch=LaunchConfig(env_servers=2, groups=1))
    with System(prepared(kind(config))) as system:
        sides, acting, learning = Sides(system), system.parts.acting[0], system.parts.learning
        assert system.served.config.serving.training_slots == SLOTS
        sides.collect()
        assert learning.updates == 0
        for _ in range(2):
            assert sides.run(0.05).steps > 0
            limiter, updates = system.parts.channel.limiter.now, learning.updates
            held = learning.accounts().get("waiting")
            assert sides.act(0.05).steps > 0
            assert learning.updates == updates
            assert system.parts.channel.limiter.now == limiter
            assert learning.accounts().get("waiting") == held
            sides.collect()
            steps = acting.training_steps
            limiter, held = system.parts.channel.limiter.now, learning.accounts().get("waiting")
            assert sides.learn(0.05).updates > 0
            assert learning.updates > updates
            assert acting.training_steps == steps
            after = system.parts.channel.limiter.now
            assert after.metrics() == limiter.metrics() and after.may_act() == limiter.may_act()
            assert learning.accounts().get("waiting") == held
        window = system.served.config.agent.window
        expected = {replayed: 16, queued: 2 * window.length, synchronous: SLOTS * window.length}
        # A row in ten or so is the first one of an episode, which is no step.
        assert 0.8 * expected[kind] < sides.update_steps() <= expected[kind]

        # The command, of a run's folder; as if it had started this system.
        monkeypatch.setattr(bounds, "System", lambda _: contextlib.nullcontext(system))
        (tmp_path / "config.json").write_text(config_io.to_json(config_io.load("cartpole_r2d2")))
        with own_process.restored():
            assert main(["bounds", str(tmp_path), "--seconds", "0.05", "--rounds", "1"]) == 0
        shown = capsys.readouterr().out.splitlines()
        assert len(shown) == 6 and shown[1].startswith("acting without learning")
