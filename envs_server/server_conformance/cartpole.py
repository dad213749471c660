"""CartPole-v1 as it should be: an oracle for episodes that an env server has played."""

import math
from collections.abc import Sequence

import gymnasium
import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

from envs_server.conformance.findings import Findings
from envs_server.server_conformance import rules
from envs_server.server_conformance.dialogues import leased
from envs_server.server_conformance.lease import random_policy
from envs_server.server_conformance.session import CARTPOLE, Session
from seedrl.types import StepType, TimeStep

# Observations are float32, and states in between may be: an error of 1e-6 a step. Another
# integrator is 6e-3 away.
_TOLERANCE = 1e-4
_START = 0.05
_LONGEST_STEPS = 500
# Keeps the pole up for 500 steps from every start (2,000 were tried).
_BALANCE = np.array([0.05, 0.1, 1.0, 0.3], np.float32)


def cartpole(session: Session) -> None:
    """Compares transitions with gymnasium's: at random, and balanced up to the time limit."""
    with leased(session) as lease:
        if [leaf.shape for _, leaf in lease.spec.leaves()] != [(4,)]:
            return  # reported already: its spec differs
        random = random_policy(lease.spec, session.plan.seed)

        def act(group: int, timestep: TimeStep) -> np.ndarray:
            if group > 0:
                return random(group, timestep)
            return (timestep.observation @ _BALANCE > 0).astype(np.int32)

        lease.play(_LONGEST_STEPS + 1, act, [0])
        if len(lease.groups) > 1:
            lease.play(session.plan.steps, act)
        else:
            lease.play(session.plan.steps, random)
        for group in lease.groups:
            compare(group, lease.rows[group], lease.acted[group], session.findings)


def compare(
    group: int, rows: Sequence[TimeStep], acted: Sequence[np.ndarray], findings: Findings
) -> None:
    """Adds what is wrong with a group's steps, given the actions between them."""
    oracle = gymnasium.make(CARTPOLE).unwrapped
    assert isinstance(oracle, CartPoleEnv)
    lengths = np.zeros(len(rows[0].step_type), int)
    starts: dict[int, np.ndarray] = {}
    for number, row in enumerate(rows):
        for env, is_type in enumerate(row.step_type):
            place = f"group {group}, row {env}, step {number}"
            observation, reward = row.observation[env], float(row.reward[env])
            if is_type == StepType.FIRST:
                lengths[env] = 0
                if env in starts and np.array_equal(observation, starts[env]):
                    text = "expected another start than that of the episode before, got it again"
                    findings.add(rules.ORACLE_SEED, f"{place}: {text}")
                starts[env] = observation
                if np.abs(observation).max() > _START:
                    findings.add(
                        rules.ORACLE_START,
                        f"{place}: expected numbers within {_START} of 0, got {_show(observation)}",
                    )
                continue
            lengths[env] += 1
            before = rows[number - 1].observation[env]
            expected = _step(oracle, before, int(acted[number - 1][env]))
            if not np.allclose(observation, expected, atol=_TOLERANCE):
                findings.add(
                    rules.ORACLE_STEP,
                    f"{place}: from {_show(before)} by action {acted[number - 1][env]} expected "
                    f"{_show(expected)}, got {_show(observation)}",
                )
            if reward != 1.0:
                findings.add(rules.ORACLE_REWARD, f"{place}: expected reward 1, got {reward:g}")
            is_last, discount = is_type == StepType.LAST, float(row.discount[env])
            _check_end(place, observation, (is_last, discount), int(lengths[env]), findings)


def _step(oracle: CartPoleEnv, state: np.ndarray, action: int) -> np.ndarray:
    oracle.reset()
    oracle.state = state.astype(np.float64)
    return np.asarray(oracle.step(action)[0], np.float64)


def _check_end(
    place: str, state: np.ndarray, end: tuple[bool, float], length: int, findings: Findings
) -> None:
    margin = min(2.4 - abs(state[0]), math.radians(12) - abs(state[2]))
    if abs(margin) < _TOLERANCE:
        return  # either may be right
    is_full = length >= _LONGEST_STEPS
    wanted = (margin < 0 or is_full, 0.0 if margin < 0 else 1.0)
    if end != wanted:
        findings.add(
            rules.ORACLE_END,
            f"{place}: after {length} steps at {_show(state)} expected {_named(wanted)}, got "
            f"{_named(end)}",
        )


def _named(end: tuple[bool, float]) -> str:
    is_last, discount = end
    return f"{'LAST' if is_last else 'MID'} with discount {discount:g}"


def _show(numbers: np.ndarray) -> str:
    return f"[{', '.join(f'{number:.5g}' for number in numbers)}]"
