"""What is recorded beside a measurement."""

import subprocess
from pathlib import Path

import pytest

from learner.bench.measure import machine

ROOT = Path(__file__).parents[4]


def test_the_commit_is_that_of_the_checkout() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    head = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert str(machine.commit()).removesuffix("-dirty") == head


def test_cores_and_versions_are_described() -> None:
    described = machine.describe()
    assert described["cores"] >= 1
    assert described["versions"]["jax"]
