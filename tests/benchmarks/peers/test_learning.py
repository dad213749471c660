"""Runs of Stable-Baselines3 as evidence: what its program says becomes the folder of a run."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from learner.cli.saved_runs.compare import compare
from learner.extras.measured_run import measure
from tests.benchmarks.peers import sb3_process
from tests.benchmarks.peers.learning import begin, is_finished, keep, run_config

TASK = {
    **sb3_process.tasks()["cartpole_ppo"],
    "total_steps": 4_000,
    "most_steps": 4_000,
}


def evaluation(steps: int, mean: float, *, is_confirmation: bool = False) -> dict[str, Any]:
    return {
        "time_seconds": 0.0,
        "kind": "evaluation",
        "elapsed_seconds": steps / 1_000,
        "mean_return": mean,
        "standard_deviation": 1.0,
        "episodes": 20,
        "updates": steps,
        "env_steps": steps,
        "is_confirmation": is_confirmation,
    }


def said(final: float = 499.0) -> Iterator[dict[str, Any]]:
    yield {"kind": "started", "time_seconds": 0.0, "threads": 1, "versions": {"torch": "2"}}
    yield evaluation(0, 10.0)
    yield evaluation(2_000, 480.0)
    yield evaluation(2_000, 470.0, is_confirmation=True)
    yield evaluation(4_000, 500.0)
    yield evaluation(4_000, 490.0, is_confirmation=True)
    yield {
        "kind": "metrics",
        "time_seconds": 0.0,
        "elapsed_seconds": 5.0,
        "env_steps": 4_000,
        "env_steps_per_second": 800.0,
        "updates": 20,
    }
    yield {"kind": "final", "time_seconds": 0.0, "returns": [final - 1, final + 1], "updates": 20}


def trained(folder: Path, *, seed: int = 0, final: float = 499.0) -> Path:
    begin(folder, "python -m peers", TASK, seed)
    keep(folder, TASK, said(final))
    return folder


def test_compare_reads_what_the_program_said(tmp_path: Path) -> None:
    run = measure(trained(tmp_path / "run"))
    assert (run.final, run.final_origin) == (499.0, "2 fresh greedy episodes")
    assert [each.mean_return for each in run.curve] == [10.0, 480.0, 500.0]
    reached = run.reached(475.0)
    assert reached is not None and (reached.env_steps, reached.seconds) == (4_000, 4.0)
    assert (run.seconds, run.budget) == (5.0, 4_000)
    assert run.record.config == "Stable-Baselines3 PPO"
    assert run.record.state == "finished"


def test_its_seeds_are_one_group_that_others_are_compared_with(tmp_path: Path) -> None:
    for seed in (0, 1):
        trained(tmp_path / "a" / f"seed={seed}", seed=seed)
        trained(tmp_path / "b" / f"seed={seed}", seed=seed, final=300.0)
    found = compare([tmp_path / "a"], [tmp_path / "b"])
    assert [len(each.group.runs) for each in found.groups] == [2, 2]
    (pair,) = found.pairs
    assert pair.probability == 1.0


def test_only_a_run_with_its_final_score_has_finished(tmp_path: Path) -> None:
    config = run_config(TASK, 0)
    assert not is_finished(tmp_path, config)
    lines = [*said()]
    begin(tmp_path, "", TASK, 0)
    keep(tmp_path, TASK, lines[:-1])
    assert not is_finished(tmp_path, config)
    keep(tmp_path, TASK, lines)
    assert is_finished(tmp_path, config)
    # Begun again, it has not.
    begin(tmp_path, "", TASK, 0)
    assert not is_finished(tmp_path, config)


def test_a_folder_of_other_settings_is_refused(tmp_path: Path) -> None:
    trained(tmp_path)
    with pytest.raises(ValueError, match="choose another --workdir"):
        is_finished(tmp_path, run_config({**TASK, "most_steps": 8_000}, 0))


def test_what_is_compared_on_equal_steps_takes_exactly_these() -> None:
    for name, task in sb3_process.tasks().items():
        if "target_return" not in task:
            rounds = task["num_environments"] * task["settings"].get("n_steps", 1)
            assert task["total_steps"] % rounds == 0, name
            assert task["total_steps"] % task["round_steps"] == 0, name
