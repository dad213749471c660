"""What gymnasium's own checker says beyond our rules, in our form."""

import re
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium
from gymnasium.utils import env_checker

from envs_server.conformance import rules
from envs_server.conformance.findings import Findings

# Not the rest: it is checked more strictly here (steps, aliasing), asks for what training has no
# use for (rendering), or warns of bounds that are as wide as they should be.
_CHECKS: tuple[Callable[[gymnasium.Env[Any, Any]], None], ...] = (
    lambda env: env_checker.check_observation_space(env.observation_space),
    lambda env: env_checker.check_action_space(env.action_space),
    env_checker.check_seed_deprecation,
    env_checker.check_reset_return_info_deprecation,
    env_checker.check_reset_seed_determinism,
)
_COLOURED = re.compile(r"\x1b\[[0-9;]*m")


def check_by_gymnasium(env: gymnasium.Env[Any, Any], findings: Findings) -> None:
    """Adds what gymnasium warns of or asserts as notes; resets `env`."""
    for check in _CHECKS:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            # A numpy scalar is as good as an array without axes.
            warnings.filterwarnings("ignore", ".*Casting input x to numpy array")
            try:
                check(env)
                texts = []
            except (AssertionError, TypeError, gymnasium.error.Error) as error:
                texts = [str(error)]
        texts += [str(warning.message) for warning in caught]
        for text in texts:
            said = " ".join(_COLOURED.sub("", text).removeprefix("WARN: ").split())
            findings.add(rules.GYMNASIUM, said.rstrip("."), subject=said)
