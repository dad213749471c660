"""Runs as evidence and their groups, from folders that are given."""

import os
from pathlib import Path

import pytest

from learner.extras.comparison import Group, compare, group, lines, measure, png
from seedrl.errors import ConfigError
from tests.learner.extras.run_folders import write_run


def test_a_run_is_its_rounds_and_what_it_took(tmp_path: Path) -> None:
    run = measure(write_run(tmp_path / "a", [10.0, 30.0], seed=3))
    assert [
        (each.score.env_steps, each.seconds, each.score.mean_return) for each in run.rounds
    ] == [
        (100, 2.0, 10.0),
        (200, 4.0, 30.0),
    ]
    assert (run.record.seed, run.budget) == (3, 1000)


def test_a_final_score_is_of_fresh_episodes_if_there_are_any(tmp_path: Path) -> None:
    fresh = measure(write_run(tmp_path / "a", [10.0, 30.0], final=25.0, confirmed=28.0))
    assert (fresh.final, fresh.final_origin) == (25.0, "100 fresh greedy episodes")
    confirmed = measure(write_run(tmp_path / "b", [10.0], confirmed=28.0))
    assert (confirmed.final, confirmed.final_origin) == (28.0, "confirmation of 100 episodes")
    last = measure(write_run(tmp_path / "c", [10.0, 30.0, 20.0]))
    assert (last.final, last.final_origin) == (20.0, "last round of 20 episodes")
    # A run without evaluation slots has no other score.
    only = measure(write_run(tmp_path / "d", [], final=25.0))
    assert (only.final, only.curve, only.reached(1.0)) == (25.0, [], None)
    pictured = compare([Group("a", (only,)), Group("b", (last,))], [], None)
    assert png(pictured).startswith(b"\x89PNG") and len(list(lines(pictured))) == 5
    assert png(compare([Group("a", (only,))], [], None)).startswith(b"\x89PNG")


def test_a_return_is_reached_by_the_first_round_or_where_the_run_asked_for_it_is_confirmed(
    tmp_path: Path,
) -> None:
    run = measure(write_run(tmp_path / "a", [10.0, 30.0, 40.0], target=25.0, confirmed=26.0))
    found = run.reached(20.0), run.reached(25.0), run.reached(50.0)
    assert [each and each.score.env_steps for each in found] == [200, 350, None]
    # The confirmation is of the last parameters: it is the curve's last point.
    assert [each.score.mean_return for each in run.curve] == [10.0, 30.0, 40.0, 26.0]


def test_a_folder_may_be_anybodys(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", [10.0])
    text = (folder / "metrics.jsonl").read_text()
    wrong = ['{"kind": "evaluation"}', "[1]", "x" * 3_000_000, '{"kind": 3, "env_steps": "x"}']
    wrong += ['{"kind": "evaluation", "env_steps": 1, "elapsed_seconds": 1, "mean_return": NaN}']
    (folder / "metrics.jsonl").write_text("\n".join([*wrong, text]))
    assert [each.score.mean_return for each in measure(folder).rounds] == [10.0]
    (folder / "metrics.jsonl").unlink()
    os.mkfifo(folder / "metrics.jsonl")
    for config in (None, "[]", '{"config": 3}', '{"config": {"learning": {}}}'):
        if config is not None:
            (folder / "config.json").write_text(config)
        with pytest.raises(ConfigError) as refused:
            measure(folder)
        assert ("metrics.jsonl" if config is None else "config.json") in str(refused.value)


def test_runs_that_differ_only_in_their_seed_are_one_group(tmp_path: Path) -> None:
    seeds = [write_run(tmp_path / f"s{seed}", [1.0], seed=seed) for seed in (2, 0)]
    other = write_run(tmp_path / "r", [1.0], seed=0, ratio=1.0)
    task = write_run(tmp_path / "t", [1.0], environment="Catch", config="recall_r2d2")
    found = group(map(measure, [seeds[0], other, task, seeds[1]]))
    assert [(each.name, each.task) for each in found] == [
        ("cartpole_r2d2 replay.ratio=4.0", "CartPole-v1"),
        ("cartpole_r2d2 replay.ratio=1.0", "CartPole-v1"),
        ("recall_r2d2", "Catch"),
    ]
    assert [[run.record.seed for run in each.runs] for each in found] == [[0, 2], [0], [0]]
