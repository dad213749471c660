"""A run as evidence, from folders that are given."""

import json
from pathlib import Path

import pytest

from learner.evidence.measured_run import measure
from seedrl.errors import ConfigError
from tests.learner.evidence.run_folders import evaluation, interval, write_metrics, write_run


def test_a_run_is_its_rounds_and_what_it_took(tmp_path: Path) -> None:
    run = measure(write_run(tmp_path / "a", [10.0, 30.0], seed=3))
    assert [(each.env_steps, each.seconds, each.mean_return) for each in run.rounds] == [
        (100, 2.0, 10.0),
        (200, 4.0, 30.0),
    ]
    assert (run.record.seed, run.budget, run.seconds, run.machine) == (3, 1000, 4.0, "1 x cpu")
    assert run.pace == (50.0, 3.9, None)
    assert run.command == f"seedrl train cartpole_r2d2 --workdir {tmp_path}/a --seed 3"


def test_what_an_experiment_recorded_of_its_machine_is_said(tmp_path: Path) -> None:
    machines = ["Xeon, 2 cores, commit 24ce7d5", "Xeon, 2 cores, commit d005743"]
    (tmp_path / "experiment.json").write_text(json.dumps({"machines": machines}))
    run = measure(write_run(tmp_path / "a", [10.0]))
    assert run.machine == "1 x cpu, " + "; ".join(machines)


def test_what_a_kill_lost_is_not_part_of_the_run(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", [10.0])
    session = {"kind": "session", "env_steps": 100, "elapsed_seconds": 7.0}
    lost, again = evaluation(200, 90.0), evaluation(150, 20.0)
    lines = [evaluation(100, 10.0), interval(100), lost, interval(250), session, again]
    write_metrics(folder, lines)
    assert [each.mean_return for each in measure(folder).rounds] == [10.0, 20.0]


def test_a_final_score_is_of_fresh_episodes_if_there_are_any(tmp_path: Path) -> None:
    fresh = measure(write_run(tmp_path / "a", [10.0, 30.0], final=25.0, confirmed=28.0)).final
    assert fresh == (25.0, "100 fresh greedy episodes", True)
    confirmed = measure(write_run(tmp_path / "b", [10.0], confirmed=28.0)).final
    assert confirmed == (28.0, "confirmation of 100 episodes", False)
    last = measure(write_run(tmp_path / "c", [10.0, 30.0, 20.0])).final
    assert last == (20.0, "last round of 20 episodes", False)


def test_a_return_is_reached_by_the_first_round_or_where_the_run_asked_for_it_is_confirmed(
    tmp_path: Path,
) -> None:
    run = measure(write_run(tmp_path / "a", [10.0, 30.0, 40.0], target=25.0, confirmed=26.0))
    found = run.reached(20.0), run.reached(25.0), run.reached(50.0)
    assert [each and each.env_steps for each in found] == [200, 350, None]
    # The confirmation was played because a score was high: it is no point of the curve.
    assert [each.mean_return for each in run.curve] == [10.0, 30.0, 40.0]
    unconfirmed = measure(write_run(tmp_path / "b", [30.0, 26.0], target=25.0))
    assert unconfirmed.reached(25.0) is None


def test_a_run_that_shows_no_score_is_refused(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", [])
    with pytest.raises(ConfigError, match=r"a: expected a round of evaluation in its metrics"):
        measure(folder)
    (folder / "config.json").unlink()
    with pytest.raises(ConfigError, match=r"whose run has not begun to train"):
        measure(folder)


def test_a_file_of_a_stranger_is_read_in_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_run(tmp_path / "run", [10.0, 30.0])
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "metrics", "x": "' + "y" * 3_000_000 + '"}\n')
    assert measure(run).rounds
    monkeypatch.setattr("learner.evidence.measured_run._MOST_LINES", 1)
    with pytest.raises(ConfigError, match="metrics.jsonl"):
        measure(run)
