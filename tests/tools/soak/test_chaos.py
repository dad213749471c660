"""Faults follow each other by the seed; what an environment is asked for, one of them does."""

import itertools
import random
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from tests.tools.soak import faulty
from tests.tools.soak.chaos import ALL, END_LEARNER, schedule


def test_a_seed_decides_and_every_fault_has_its_turn() -> None:
    names = list(ALL)
    first, again = (
        list(itertools.islice(schedule(random.Random(3), names), 2 * len(names))) for _ in range(2)
    )
    assert first == again
    assert sorted(first[: len(names)]) == sorted(first[len(names) :]) == sorted(names)
    assert set(END_LEARNER) <= set(names)


def test_one_environment_obeys_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(faulty.VARIABLE, str(tmp_path))
    monkeypatch.setattr(faulty, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(faulty, "_next_look", 0.0)
    both = [faulty.Faulty(gymnasium.make("CartPole-v1")) for _ in range(2)]
    for environment in both:
        environment.reset(seed=0)
    (tmp_path / "absurd").touch()
    assert [environment.step(0)[1] for environment in both] == [1e38, 1.0]
    (tmp_path / "nan").touch()
    assert np.isnan(both[1].step(0)[0]).all()
    (tmp_path / "raises").touch()
    with pytest.raises(RuntimeError, match="licence"):
        both[0].step(0)
    assert list(tmp_path.iterdir()) == []
