"""Tuning: how knobs are turned, on fleets whose optimum is known; and what a profile may set."""

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from learner.cli import train
from learner.cli.arguments import PROFILE, profile_fields
from learner.cli.main import main
from learner.extras import tune as tune_module
from learner.extras.bench.measuring import Pace
from learner.extras.bench.system import Interval
from learner.extras.tune import LEAST_GAIN, Move, Setting, climb, setting_of, tune
from seedrl import config_io
from seedrl.config import Config, check
from seedrl.errors import ConfigError
from seedrl.fields import with_fields
from tests import own_process
from tests.system.processes import SMALLEST

START = Setting(2, 16, 2, 0.001)


def climbed(rate: dict[str, float], limit: float, most: int = 10**6) -> tuple[Setting, list[Move]]:
    """Moves on a fleet: each knob helps in proportion up to its number, all together to a limit."""

    def speed(setting: Setting) -> float:
        values = setting._asdict()
        product = 1.0
        for knob, best in rate.items():
            product *= min(values[knob], best) / max(1.0, values[knob] / best) ** 0.5
        return min(limit, product)

    moves: list[Move] = []
    best = START
    turns = iter(range(most))
    for move in climb(
        START,
        lambda best, new: speed(new) / speed(best) - 1,
        lambda: next(turns, None) is None,
    ):
        assert move.is_kept == (move.gain >= LEAST_GAIN)
        best = move.setting if move.is_kept else best
        moves.append(move)
    return best, moves


def test_knobs_are_turned_until_none_makes_it_faster() -> None:
    best, moves = climbed({"env_servers": 8, "environments": 16, "groups": 3}, limit=1e9)
    assert best == Setting(8, 16, 3, 0.001) and len(moves) <= 20
    best, _ = climbed({"env_servers": 1, "environments": 64, "groups": 1}, limit=1e9)
    assert best == Setting(1, 64, 1, 0.001)
    # No setting is measured twice.
    assert len({move.setting for move in moves}) == len(moves)


def test_nothing_is_kept_where_learning_binds_and_nothing_is_tried_when_time_is_up() -> None:
    best, moves = climbed({"env_servers": 8}, limit=1.0)
    assert best == START and not any(move.is_kept for move in moves)
    assert climbed({"env_servers": 8}, limit=1e9, most=2)[0].env_servers == 8
    assert climbed({"env_servers": 8}, limit=1e9, most=0) == (START, [])


def test_the_same_environments_are_split_where_more_cannot_run() -> None:
    # As fast as there are env servers, for at most 64 environments.
    def gain_over(best: Setting, new: Setting) -> float:
        if new.env_servers * new.environments > 64:
            raise ConfigError("replay.min_steps: expected at least 5120")
        return min(new.env_servers, 16) / min(best.env_servers, 16) - 1

    moves = list(climb(START, gain_over, lambda: False))
    assert [move.setting for move in moves if move.is_kept] == [
        Setting(4, 16, 2, 0.001),
        Setting(8, 8, 2, 0.001),
        Setting(16, 4, 2, 0.001),
    ]
    refused = [move for move in moves if move.error]
    assert refused and all("min_steps" in move.error for move in refused)
    # And back, if few env servers are faster.
    moves = list(
        climb(START, lambda best, new: best.env_servers / new.env_servers - 1, lambda: False)
    )
    assert [move.setting for move in moves if move.is_kept][-1].env_servers == 1


def test_a_profile_sets_what_tune_has_found_and_options_win(tmp_path: Path) -> None:
    config = config_io.load("cartpole_r2d2")
    assert setting_of(config) == START
    # As many env servers as a run starts.
    many = with_fields(config, {"launch.env_servers": 64})
    assert setting_of(many)[:2] == (32, 1)
    setting = Setting(4, 16, 3, 0.002)
    assert set(setting.fields()) == set(PROFILE)
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(setting.fields()))
    words = ["cartpole_r2d2", "--profile", str(path)]
    _, found = train.read(words)
    check(found)
    assert setting_of(found) == setting and found == setting.applied(config)
    assert dataclasses.replace(found, launch=config.launch, serving=config.serving) == config
    for flag, kept in (
        ("--launch.groups=1", (1, 4, 64)),
        ("--groups=1", (1, 4, 64)),
        ("--env-servers=1", (3, 1, 64)),
        ("--envs=3", (3, 4, 3)),
    ):
        _, found = train.read([*words, flag])
        launch, slots = found.launch, found.serving.training_slots
        assert (launch.groups, launch.env_servers, slots) == kept


@pytest.mark.parametrize(
    "text",
    [
        '{"replay.ratio": 1}',
        '{"launch.\\u001b[2J": 1}',
        "[1]",
        "no JSON",
        '{"launch.groups": "2"}',
        '{"launch.groups": null}',
        json.dumps({"launch.groups": "9" * 100_000}),
        json.dumps({"launch.groups": [9] * 100_000}),
    ],
)
def test_a_profile_sets_nothing_else(tmp_path: Path, text: str) -> None:
    (tmp_path / "profile.json").write_text(text)
    with pytest.raises(ConfigError, match="--profile") as caught:
        profile_fields(tmp_path / "profile.json")
    # One line for a terminal: of the file's words only a few, and no control character.
    assert len(str(caught.value)) < 600 and str(caught.value).isprintable()


def test_the_command_writes_what_is_fastest_and_goes_on_after_what_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class System:
        """As fast as it has groups; three env servers are too much for the machine."""

        def __init__(self, config: Config) -> None:
            self.launch = config.launch

        def __enter__(self) -> "System":
            if self.launch.env_servers > 2:
                raise ConfigError("environment.id: no memory")
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def run_until(self, condition: object) -> None:
            pass

        def run(self, seconds: float, *, by_updates: bool) -> Interval:
            return Interval(100 * self.launch.groups, 1, 1.0, {})

    monkeypatch.setattr(tune_module, "System", System)
    profile = tmp_path / "profile.json"
    words = ["tune", "cartpole_r2d2", "--total-seconds", "1e6", "--output", str(profile)]
    with own_process.restored():
        assert main(words) == 0
    assert json.loads(profile.read_text()) == START._replace(groups=4).fields()
    first, *tried, last, wrote = capsys.readouterr().out.splitlines()
    assert first.startswith("as it is") and last.startswith("expected: +100% ")
    assert str(profile) in wrote
    assert sum("kept" in line for line in tried) == 2
    assert all(line.startswith("unmeasured") == ("4 env servers" in line) for line in tried)
    assert any(line.endswith(": environment.id: no memory") for line in tried)
    run = System.run

    def interrupted(self: System, seconds: float, *, by_updates: bool) -> Interval:
        if self.launch.groups == 4:
            raise KeyboardInterrupt
        return run(self, seconds, by_updates=by_updates)

    monkeypatch.setattr(System, "run", interrupted)
    with own_process.restored():
        assert main([*words, "--force"]) == 143
    assert json.loads(profile.read_text()) == START._replace(groups=3).fields()
    words = ["tune", "cartpole_r2d2", "--launch.env-servers", "4", "--output", str(tmp_path / "no")]
    with own_process.restored():
        assert main(words) == 2
    assert "environment.id: no memory" in capsys.readouterr().err


def test_an_on_policy_agent_gets_no_more_environments_than_an_update_has_sequences(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @contextlib.contextmanager
    def running(config: Config, setting: Setting) -> Iterator[Callable[[float], float]]:
        del config
        yield lambda _: float(setting.env_servers * setting.environments)

    monkeypatch.setattr(tune_module, "running", running)

    def best(slots: int) -> int:
        config = with_fields(
            config_io.load("cartpole_impala"),
            {"serving.training_slots": slots, "learning.batch_sequences": 16},
        )
        moves = list(tune(config, Pace(1, 0.0), seconds=1e6, most_env_servers=1000))
        errors = [move.error for move in moves if move.error]
        assert errors and all("expected at most" in error for error in errors)
        kept = [move.setting for move in moves if move.is_kept] or [setting_of(config)]
        return kept[-1].env_servers * kept[-1].environments

    # One that has more as it is keeps them.
    assert [best(8), best(16), best(64)] == [16, 16, 64]


@pytest.mark.gate
def test_tune_compares_real_systems(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profile = tmp_path / "profile.json"
    words = ["tune", "cartpole_r2d2", *SMALLEST, "--serving.training-slots", "2"]
    words += ["--launch.env-servers", "1", "--learning.num-devices", "1"]
    # Time for the start and a few comparisons.
    words += f"--total-seconds 60 --seconds 0.05 --rounds 1 --output {profile}".split()
    assert main(words) == 0
    first, second, *others, last, _ = capsys.readouterr().out.splitlines()
    assert "1 env servers of 2 environments" in first
    assert "2 env servers of 2 environments" in second and last.startswith("expected: +")
    kept = [
        line for line in (first, second, *others) if line.startswith("as it is") or "kept" in line
    ]
    found = json.loads(profile.read_text())
    assert f" {found['launch.env_servers']} env servers of" in kept[-1]
