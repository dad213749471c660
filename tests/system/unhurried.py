"""Environments whose steps take some time, as games' do.

A run that a test watches spends no more CPU time than it must: learner and environments would
otherwise use all there is until what the test waits for has happened.
"""

import time
from typing import Any

import gymnasium

_STEP_SECONDS = 0.005


class Unhurried(gymnasium.Wrapper[Any, Any, Any, Any]):
    """The environment it is given; each step takes 5 ms more."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """See Env."""
        time.sleep(_STEP_SECONDS)
        return self.env.step(action)
