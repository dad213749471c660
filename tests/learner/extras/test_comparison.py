"""Runs as evidence, and numbers of groups and between groups, worked by hand."""

import math
import os
from pathlib import Path

import numpy as np
import pytest

from learner.extras.comparison import (
    Group,
    compare,
    group,
    interquartile_mean,
    interval,
    lines,
    measure,
    numbers,
    png,
    probability_of_improvement,
)
from seedrl.errors import ConfigError
from tests.learner.extras.run_folders import write_run


def runs_of(root: Path, *finals: float, **kind: object) -> Group:
    """A group of runs with these final scores."""
    root = root / "_".join(map(str, kind.values()))
    folders = [
        write_run(root / str(seed), [final / 2, final], seed=seed, final=final, **kind)  # type: ignore[arg-type]
        for seed, final in enumerate(finals)
    ]
    (found,) = group(map(measure, folders))
    return found


@pytest.mark.parametrize(
    ("scores", "expected"),
    [((3.0,), 3.0), ((1.0, 2.0, 9.0), 4.0), ((0.0, 1.0, 2.0, 3.0, 100.0), 2.0)],
)
def test_an_interquartile_mean_cuts_a_quarter_from_each_end(
    scores: tuple[float, ...], expected: float
) -> None:
    assert float(interquartile_mean(scores)) == expected
    # Along any axis, as the bootstrap asks for.
    assert interquartile_mean(np.array([scores, scores]).T, axis=0).tolist() == [expected] * 2


def test_a_probability_counts_pairs_and_ties_half() -> None:
    assert float(probability_of_improvement([3.0, 1.0], [1.0, 2.0])) == (1 + 1 + 0.5 + 0) / 4


@pytest.mark.gate  # an interval's place: test_a_group_is_summed_up
def test_an_interval_holds_the_mean_of_normal_scores_about_as_often_as_it_should() -> None:
    rng = np.random.default_rng(1)
    bounds = [interval([rng.normal(size=20).tolist()], interquartile_mean) for _ in range(40)]
    assert 32 <= sum(low <= 0.0 <= high for low, high in bounds) <= 40


def test_a_group_is_summed_up(tmp_path: Path) -> None:
    found = numbers(runs_of(tmp_path, 1.0, 2.0, 3.0, 10.0), 2.5)
    assert (found.final.mean, found.final.iqm) == (4.0, 2.5)
    assert found.final.interval is not None and found.final.interval[0] >= 1.0
    assert found.steps == [math.inf, math.inf, 200.0, 100.0]
    assert numbers(runs_of(tmp_path, 5.0, ratio=2.0), None).final == (5.0, 5.0, None, [5.0])


@pytest.mark.parametrize(
    ("threshold", "expected"),
    [
        (11.0, "reached by 0 of 4 runs"),
        (2.5, "reached by 2 of 4 runs: steps never never 200 100"),
        (1.5, "reached by 3 of 4 runs: median 150 steps and 3 s; steps never 200 100 100"),
    ],
)
def test_a_line_tells_how_many_runs_reached_a_return(
    tmp_path: Path, threshold: float, expected: str
) -> None:
    found = compare([runs_of(tmp_path, 1.0, 2.0, 3.0, 10.0)], [], threshold)
    row = next(line for line in lines(found) if line.split()[0] == "to")
    assert row.split(maxsplit=2)[2] == expected


def test_groups_are_compared_on_their_own_task(tmp_path: Path) -> None:
    sides = [
        [runs_of(tmp_path, *finals, environment=task, ratio=ratio) for task, finals in of.items()]
        for ratio, of in (
            (4.0, {"X": (6.0, 7.0), "Y": (100.0, 300.0)}),
            (1.0, {"X": (1.0, 2.0), "Y": (200.0, 400.0)}),
        )
    ]
    found = compare(*sides, None)
    assert [(pair.a, pair.b, pair.probability) for pair in found.pairs] == [
        ("A", "C", 1.0),
        ("B", "D", 0.25),
    ]
    # All runs of A are better: resampling shows no spread, which is no certainty.
    assert [pair.interval is None for pair in found.pairs] == [True, False]
    with pytest.raises(ConfigError) as refused:
        compare(sides[0][:1], sides[1][1:], None)
    assert "--against" in str(refused.value)


def test_an_environment_with_other_arguments_is_another_task(tmp_path: Path) -> None:
    one, other = (
        runs_of(tmp_path, 1.0, environment="X", arguments=f'{{"game": {game}}}') for game in (1, 2)
    )
    assert one.task == 'X {"game": 1}'
    with pytest.raises(ConfigError, match="--against"):
        compare([one], [other], None)


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
