"""Groups of runs and their numbers, from folders that are given."""

import math
from pathlib import Path

import pytest

from learner.evidence.comparison import numbers, overall, pairs, threshold_of
from learner.evidence.grouping import Group, group
from learner.evidence.measured_run import measure
from seedrl.errors import ConfigError
from tests.learner.evidence.run_folders import write_run


def runs_of(root: Path, *finals: float, **kind: object) -> Group:
    """A group of runs with these final scores."""
    root = root / "_".join(map(str, kind.values()))
    folders = [
        write_run(root / str(seed), [final / 2, final], seed=seed, final=final, **kind)  # type: ignore[arg-type]
        for seed, final in enumerate(finals)
    ]
    (found,) = group(map(measure, folders))
    return found


def test_runs_that_differ_in_their_seed_alone_are_one_group(tmp_path: Path) -> None:
    seeds = [write_run(tmp_path / f"s{seed}", [1.0], seed=seed) for seed in (2, 0)]
    other = write_run(tmp_path / "r", [1.0], seed=0, ratio=1.0)
    task = write_run(tmp_path / "t", [1.0], environment="Catch", config="catch_r2d2")
    found = group(map(measure, [seeds[0], other, task, seeds[1]]))
    assert [(each.name, each.task) for each in found] == [
        ("cartpole_r2d2 replay.ratio=4.0", "CartPole-v1"),
        ("cartpole_r2d2 replay.ratio=1.0", "CartPole-v1"),
        ("catch_r2d2", "Catch"),
    ]
    assert [[run.record.seed for run in each.runs] for each in found] == [[0, 2], [0], [0]]


def test_a_group_is_summed_up(tmp_path: Path) -> None:
    found = numbers(runs_of(tmp_path, 1.0, 2.0, 3.0, 10.0), 2.5)
    assert (found.final.mean, found.final.iqm) == (4.0, 2.5)
    assert found.final.interval is not None and found.final.interval.low >= 1.0
    # Level before 100 and behind 200 steps, of a budget of 1,000.
    assert found.area.each[3] == pytest.approx((100 * 5 + 100 * 7.5 + 800 * 10) / 1000)
    assert found.threshold is not None
    assert found.threshold.steps == [math.inf, math.inf, 200.0, 100.0]
    assert (found.threshold.median_steps, found.threshold.never) == (math.inf, 2)
    assert found.pace == {"env_steps_per_second": 50.0, "replay_ratio": 3.9}


def test_a_single_run_has_no_interval(tmp_path: Path) -> None:
    assert numbers(runs_of(tmp_path, 5.0), None).final == (5.0, 5.0, None, [5.0])


def test_one_group_is_compared_with_another(tmp_path: Path) -> None:
    a = numbers(runs_of(tmp_path, 6.0, 7.0, 8.0, 9.0, 10.0, ratio=4.0), 5.5)
    b = numbers(runs_of(tmp_path, 1.0, 2.0, 3.0, 4.0, 5.0, ratio=1.0), 5.5)
    (found,) = pairs([a], [b])
    assert (found.a, found.b) == (0, 1)
    assert found.final == found.area == (1.0, (1.0, 1.0), 1 / 252)
    assert found.steps == found.final  # never is more than any number of steps
    assert pairs([b], [a])[0].final.p == 1.0
    nobody = [numbers(each.group, 99.0) for each in (a, b)]
    assert pairs(nobody[:1], nobody[1:])[0].steps is None
    assert overall([found], [a, b]) is None


def test_over_tasks_the_probability_is_the_mean(tmp_path: Path) -> None:
    sides = [
        numbers(runs_of(tmp_path, *finals, environment=name, ratio=ratio), None)
        for finals, name, ratio in (
            ((6.0, 7.0), "X", 4.0),
            ((100.0, 300.0), "Y", 4.0),
            ((1.0, 2.0), "X", 1.0),
            ((200.0, 400.0), "Y", 1.0),
        )
    ]
    found = pairs(sides[:2], sides[2:])
    assert [(pair.a, pair.b, pair.final.probability) for pair in found] == [
        (0, 2, 1.0),
        (1, 3, 0.25),
    ]
    together = overall(found, sides)
    assert together is not None and together.probability == 0.625 and together.p is None


def test_other_environments_are_not_compared(tmp_path: Path) -> None:
    a = numbers(runs_of(tmp_path, 1.0, environment="X"), None)
    b = numbers(runs_of(tmp_path, 1.0, environment="Y"), None)
    with pytest.raises(ConfigError, match=r"same environments on both sides, got X against Y"):
        pairs([a], [b])


def test_the_threshold_is_the_target_that_all_runs_have(tmp_path: Path) -> None:
    with_target, other = (runs_of(tmp_path, 1.0, target=target) for target in (475.0, 400.0))
    without = runs_of(tmp_path, 1.0, target=None)
    assert threshold_of([with_target]) == 475.0
    assert threshold_of([with_target, other]) is None and threshold_of([without]) is None
