"""The command `seedrl plan`."""

import functools
import json
from pathlib import Path
from typing import Any

import pytest

from learner.cli import plan
from learner.cli.main import main
from learner.planning import measuring, programs
from learner.planning.costs import BUNDLED, load
from learner.session import process
from seedrl.config import Config
from seedrl.specs import EnvSpec

_TOO_LITTLE = "memory: each device would need more than it has"
_FLEET = ["--environments", "1000", "--step-ms", "3"]
_CROWD = ["--environments", "100000", "--step-ms", "3", "--accelerator", "h200"]

_BUILD = plan._spec
_SPECS: dict[Any, EnvSpec] = {}
_PROGRAMS_OF = functools.cache(programs.programs_of)  # traced once for all tests


def _spec(config: Config) -> EnvSpec:
    """A process builds the environment to see its spaces: once for those that are built alike."""
    key = config.environment, config.launch
    if key not in _SPECS:
        _SPECS[key] = _BUILD(config)
    return _SPECS[key]


@pytest.fixture(autouse=True)
def _built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "_spec", _spec)
    monkeypatch.setattr(programs, "programs_of", _PROGRAMS_OF)


def _cartpole(field: str, change: str, folder: Path) -> str:
    """The configuration of CartPole with another value in one of its fields.

    And with a network of one layer, which is traced in a quarter of the time.
    """
    path = folder / "changed.py"
    path.write_text(
        "import dataclasses\n"
        "from seedrl import config_file\n"
        "def config():\n"
        "    found = config_file.load('cartpole_r2d2')\n"
        "    network = dataclasses.replace(\n"
        "        found.agent.network, torso_sizes=(), core='none', head_sizes=(), dueling=False\n"
        "    )\n"
        "    agent = dataclasses.replace(found.agent, network=network)\n"
        f"    changed = dataclasses.replace(found.{field}, {change})\n"
        f"    return dataclasses.replace(found, agent=agent, {field}=changed)\n"
    )
    return str(path)


def _storing(steps: int, folder: Path) -> str:
    return _cartpole("replay", f"capacity_steps={steps}", folder)


@pytest.fixture
def small(tmp_path: Path) -> str:
    """With nothing changed but the network."""
    folder = tmp_path / "small"
    folder.mkdir()
    return _cartpole("launch", "", folder)


def _json(argv: list[str], capsys: pytest.CaptureFixture[str]) -> Any:
    assert main(["plan", *argv, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_plan_names_machines_and_what_binds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "cartpole_r2d2", *_FLEET, "--accelerator", "h200"]) == 0
    out = capsys.readouterr().out
    lines = [line.split("  ")[0] for line in out.splitlines()]
    assert {"environment steps/s", "learner hosts", "env-server cores", "an hour"} <= set(lines)
    assert "with 1 x h200" in out and "What binds is " in out
    assert "h200: $3.99 on 2026-08-26" in out and "(assumed)" in out
    assert _TOO_LITTLE not in out


def test_programs_get_json(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    argv = [small, *_FLEET, "--update-ms", "5", "--act-us", "10", "--envs-per-server", "40"]
    found = _json([*argv, "--learner-cores", "4"], capsys)
    assert found["env_servers"] == 25
    assert found["costs"]["update"] == pytest.approx(0.005)
    assert found["costs"]["act_row"] == pytest.approx(1e-5)
    # 16 sequences of 20 trained rows at a replay ratio of 4.
    assert found["demand"]["steps_per_update"] == 16 * 20 / 4
    assert found["steps_per_second"] < 1000 / 0.003


def test_an_environment_that_cannot_be_built_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = _cartpole("environment", "id='CartPole-v9'", tmp_path)
    assert main(["plan", config, *_FLEET]) == 2
    *_, line = capfd.readouterr().err.splitlines()
    assert "environment.id: expected one that can be built here, got 'CartPole-v9'" in line


def test_a_replay_that_no_device_can_number_is_one_line_and_more_devices_can(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["plan", _storing(3 * 10**9, tmp_path), *_FLEET, "--accelerator", "h100"]
    assert main(argv) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "replay.capacity_steps: expected at most" in error
    assert main([*argv, "--hosts", "2"]) == 0


def test_ppo_has_one_host_however_many_would_be_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "pendulum_ppo", *_CROWD]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "learning.regime synchronous is for one host; --hosts 1 shows what it does" in error
    assert main(["plan", "pendulum_ppo", *_CROWD, "--hosts", "1"]) == 0
    assert "more learner hosts" not in capsys.readouterr().out


def test_a_round_waits_for_all_environments(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = _json(["pendulum_ppo", *_CROWD, "--hosts", "1"], capsys)
    assert found["demand"]["in_rounds"]
    messages = found["env_servers"] * found["demand"]["groups"]
    assert found["of_each_host"]["messages_per_batch"] == messages
    assert not _json([small, *_FLEET], capsys)["demand"]["in_rounds"]


def test_groups_with_threads_step_side_by_side(
    tmp_path: Path, small: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = _cartpole("launch", "groups=2, group_threads=True", tmp_path)
    assert _json([config, *_FLEET], capsys)["demand"]["groups_at_once"] == 2
    assert _json([small, *_FLEET], capsys)["demand"]["groups_at_once"] == 1


def test_devices_that_only_act_do_not_learn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = _cartpole("serving", "inference_devices=2", tmp_path)
    found = _json([config, *_FLEET, "--accelerator", "h100:4", "--hosts", "1"], capsys)
    per_step = found["costs"]["update"] / found["demand"]["steps_per_update"]
    of_two = found["steps_per_second"] * per_step / 2
    assert found["of_each_host"]["loads"]["devices"] == pytest.approx(of_two)
    # A batch of each of the two that act, out of what arrives for it within the deadline.
    of_each = found["of_each_host"]["messages_per_second"] / 2
    deadline = found["demand"]["batch_deadline_seconds"]
    assert found["of_each_host"]["messages_per_batch"] == pytest.approx(1 + of_each * deadline)
    assert not any("would have to change for hosts" in note for note in found["notes"])


def test_memory_that_no_device_has_is_remarked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", _storing(10**9, tmp_path), *_FLEET, "--accelerator", "a100"]) == 0
    assert _TOO_LITTLE in capsys.readouterr().out


def test_a_replay_too_small_for_the_environments_is_remarked(
    small: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", small, "--environments", "3000", "--step-ms", "3"]) == 0
    remark = "CONFIG would have to change: replay.capacity_steps: expected at least"
    assert remark in " ".join(capsys.readouterr().out.split())


def test_costs_can_be_measured_and_kept(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    small: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    costs = load(BUNDLED)
    monkeypatch.setattr(measuring, "measured", lambda: costs)
    monkeypatch.setattr(process, "tune_process", lambda **_: None)
    file = tmp_path / "costs.json"
    argv = ["plan", small, *_FLEET, "--measure", "--write-costs", str(file)]
    assert main(argv) == 0
    assert load(file) == costs
    assert main(["plan", small, *_FLEET, "--costs", str(file)]) == 0
    first, second = capsys.readouterr().out.split("environment steps/s")[1:]
    assert first == second


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--environments", "0"], "--environments: expected at least 1, got 0"),
        (["--step-ms", "0"], "--step-ms: expected more than 0, got 0"),
        (["--step-cpu-ms", "4"], "--step-cpu-ms: expected 0 to 3, --step-ms, got 4"),
        (["--headroom", "2"], "--headroom: expected more than 0 and at most 1, got 2"),
        (["--hosts", "-1"], "--hosts: expected at least 1, or 0, got -1"),
        (["--accelerator", "abacus"], "--accelerator: expected NAME or NAME:COUNT"),
        (["--accelerator", "l4"], "--accelerator: how fast l4 computes is not known here"),
        (["--accelerator", "h100:3"], "learning.batch_sequences: expected a multiple of the 3"),
        (["--hosts", "3"], "learning.batch_sequences: expected a multiple of the 3"),
        (["--costs", "no.json"], "--costs: expected a readable file, got no.json"),
        (["--device-usd-per-hour", "2"], "--device-usd-per-hour: expected with an accelerator"),
        (["--measure", "--costs", "no.json"], "--costs: expected without --measure"),
        (["--write-costs", "."], "--write-costs: expected a file in an existing folder, got ."),
        (["--write-costs", "no/costs.json"], "--write-costs: expected a file in an existing"),
    ],
)
def test_wrong_usage_is_one_line(
    flags: list[str], message: str, small: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", small, *_FLEET, *flags]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and message in error
