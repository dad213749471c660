"""The bounds of a run: their arithmetic, and that each side is measured while the other rests."""

import contextlib
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from learner.cli.bounds import text
from learner.cli.main import main
from learner.extras.bench import bounds
from learner.extras.bench.bounds import Sides, compared, prepared
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
    ("acting", "learning", "both", "upper", "lower", "of_upper", "of_lower", "is_between", "binds"),
    [
        (6.0, 3.0, 2.4, 3.0, 2.0, 0.8, 1.2, True, "learning"),
        (3.0, 6.0, 1.9, 3.0, 2.0, 1.9 / 3, 0.95, True, "acting"),
        (3.0, 6.0, 1.89, 3.0, 2.0, 0.63, 0.945, False, "acting"),
        (4.0, 4.2, 4.2, 4.0, 16.8 / 8.2, 1.05, 2.05, True, "both"),
        (4.0, 4.0, 4.21, 4.0, 2.0, 1.0525, 2.105, False, "both"),
    ],
)
def test_bounds_are_the_slower_side_and_both_in_turn(
    acting: float,
    learning: float,
    both: float,
    upper: float,
    lower: float,
    of_upper: float,
    of_lower: float,
    is_between: bool,
    binds: str,
) -> None:
    # The second round is of a machine half as fast: each round is compared with itself. A step of
    # acting takes 0.25 processor seconds, one of learning 0.5, and one of both 1.
    def interval(steps: float, seconds: float, processor_seconds: float) -> Interval:
        return Interval(round(1000 * steps), round(125 * steps), seconds, {}, processor_seconds)

    rounds = [
        [interval(rate, slow * 1000.0, cost * 1000 * rate) for slow in (1, 2)]
        for rate, cost in ((acting, 0.25), (learning, 0.5), (both, 1.0))
    ]
    found = compared(*rounds, update_steps=8.0)
    assert found["of_processor_time"] == pytest.approx(1 / 0.75)
    assert found["both_cores"] == pytest.approx(0.75 * both)
    assert found["upper_steps_per_second"]["rounds"] == pytest.approx((upper, upper / 2))
    assert found["lower_steps_per_second"]["rounds"] == pytest.approx((lower, lower / 2))
    assert found["of_upper"] == pytest.approx(of_upper)
    assert found["of_lower"] == pytest.approx(of_lower)
    assert (found["is_between"], found["binds"]) == (is_between, binds)


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
        flags = ["--seconds", "0.05", "--rounds", "1", "--json"]
        with own_process.restored():
            assert main(["bounds", str(tmp_path), *flags]) == 0
        found = json.loads(capsys.readouterr().out)
        for side in ("acting", "learning", "both"):
            assert found[f"{side}_steps_per_second"]["median"] > 0
        assert found["machine"]["cores"] >= 1 and found["pace"] == {"rounds": 1, "seconds": 0.05}
        assert len(text(found).splitlines()) == 6
