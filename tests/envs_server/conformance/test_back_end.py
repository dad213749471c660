"""What a back end does wrong is noticed, and reported with its step."""

from collections.abc import Sequence

import numpy as np
import pytest

from envs_server.backends import sync
from envs_server.conformance.back_end import check_back_end
from envs_server.conformance.findings import Findings
from envs_server.envs import catch, counting
from envs_server.recipe import Recipe
from envs_server.vector import VectorEnvironment, VectorStep

_SEEDS = [11, 22, 33]


def _broken(change: dict[int, dict[str, object]]) -> VectorEnvironment:
    """Catch whose n-th step is replaced in these fields."""
    environment = sync.build(Recipe("catch", {}, (), catch.make), len(_SEEDS))
    count = 0

    def step(actions: np.ndarray) -> VectorStep:
        nonlocal count
        count += 1
        return environment.step(actions)._replace(**change.get(count, {}))

    return environment._replace(step=step)


@pytest.mark.parametrize(
    ("change", "rule", "reason"),
    [
        (
            {2: {"reward": np.array([0, np.nan, 0])}},
            "wire",
            "step 2: expected finite numbers in reward, got nan at [1]",
        ),
        (
            {3: {"observation": np.zeros((3, 10, 5), np.float64)}},
            "wire",
            "step 3: expected float32[3, 10, 5] for observation, got float64[3, 10, 5]",
        ),
        (
            {4: {"terminated": np.zeros(3, np.int64)}},
            "wire",
            "step 4: expected 3 bools for terminated, got ndarray int64[3]",
        ),
        (
            {5: {"reward": np.zeros((3, 1))}},
            "wire",
            "step 5: expected 3 numbers for reward, got ndarray float64[3, 1]",
        ),
        (
            {10: {"terminated": np.ones(3, np.bool_)}},
            "autoreset",
            "step 10: environment 0 ended an episode with its first observation",
        ),
        (
            {10: {"reward": np.array([0, 0, 2.5])}},
            "autoreset",
            "step 10: expected reward 0 with a first observation, got 2.5",
        ),
    ],
)
def test_a_broken_step_is_named(
    change: dict[int, dict[str, object]], rule: str, reason: str
) -> None:
    findings = Findings()
    check_back_end(lambda: _broken(change), findings, seeds=_SEEDS, num_steps=12)
    (finding,) = findings.errors
    assert (finding.rule.name, finding.text) == (rule, reason)


def test_environments_that_ignore_their_seeds_are_noticed() -> None:
    builds = 0

    def build() -> VectorEnvironment:
        nonlocal builds
        builds += 1
        environment = sync.build(Recipe("counting", {}, (), counting.make), len(_SEEDS))
        others = [builds + seed for seed in _SEEDS]

        def reset(ignored: Sequence[int]) -> np.ndarray:
            return environment.reset(others)

        return environment._replace(reset=reset)

    findings = Findings()
    check_back_end(build, findings, seeds=_SEEDS, num_steps=2)
    (finding,) = findings.errors
    assert finding.rule.name == "seeding"
    assert finding.text.endswith("on the back end: environment 0, reset: another observation")


def test_environments_that_do_not_close_are_told() -> None:
    def build() -> VectorEnvironment:
        def close() -> None:
            raise OSError("still in use")

        return _broken({})._replace(close=close)

    findings = Findings()
    assert check_back_end(build, findings, seeds=_SEEDS, num_steps=2)
    (finding,) = findings.errors
    assert finding.text.startswith("close of the back end raised OSError: still in use (test_")
