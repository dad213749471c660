"""CartPole-v1 as it should be: an oracle for episodes that an env server has played."""

import json
import math
import sys
from collections.abc import Sequence
from typing import NamedTuple

import grpc
import gymnasium
import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

from envs_server.conformance.findings import Findings
from envs_server.server_conformance import rules
from envs_server.server_conformance.dialogues import changed, leased, take_refusal
from envs_server.server_conformance.lease import Lease, RefusedError, random_policy, terms
from envs_server.server_conformance.rules import BrokenError
from envs_server.server_conformance.session import CARTPOLE, Session
from seedrl.types import StepType, TimeStep

# Observations are float32, and states in between may be: an error of 1e-6 a step. Another
# integrator is 6e-3 away.
_TOLERANCE = 1e-4
_START = 0.05
_MOST_STEPS = 501  # in which the pole is balanced: a time limit beyond is not tried
_ARGUED_ROUNDS = 60  # in which poles fall, if nobody balances them
# Keeps the pole up for 500 steps from every start (2,000 were tried).
_BALANCE = np.array([0.05, 0.1, 1.0, 0.3], np.float32)


def cartpole(session: Session) -> None:
    """Compares transitions with gymnasium's: at random, and balanced up to the time limit."""
    try:
        oracle = Oracle(session.plan.environment.arguments)
    except Exception:  # gymnasium knows no such arguments: nor do we know its numbers
        return
    with leased(session) as lease:
        if [leaf.shape for _, leaf in lease.spec.leaves()] != [(4,)]:
            return  # reported already: its spec differs
        random = random_policy(lease.spec, session.plan.seed)

        def act(group: int, timestep: TimeStep) -> np.ndarray:
            if group > 0:
                return random(group, timestep)
            return (timestep.observation @ _BALANCE > 0).astype(np.int32)

        lease.play(min(oracle.longest_steps + 1, _MOST_STEPS), act, [0])
        if len(lease.groups) > 1:
            lease.play(session.plan.steps, act)
        else:
            lease.play(session.plan.steps, random)
        for group in lease.groups:
            compare(group, lease.rows[group], lease.acted[group], oracle, session.findings)


def limited(session: Session) -> None:
    """Episodes of at most ten steps, unless it refuses to play them."""
    _play_with(session, {"max_episode_steps": 10})


def sutton_barto(session: Session) -> None:
    """Rewards as Sutton and Barto gave them, unless it refuses to."""
    _play_with(session, {"sutton_barto_reward": True})


def _play_with(session: Session, arguments: dict[str, object]) -> None:
    """What it does not refuse must show in the numbers: it may not be ignored."""
    given = json.dumps(arguments)
    stream, hello = session.hello()
    environment = changed(session.plan.environment, arguments=given)
    wanted = terms(session, hello)._replace(environments=(environment,))
    try:
        lease = Lease(session, stream, wanted)
        lease.play(_ARGUED_ROUNDS, random_policy(lease.spec, session.plan.seed))
    except RefusedError as error:
        session.skipped.append(f"episodes with {given}: it refuses them, as it may ({error})")
        take_refusal(session, stream, str(error))
        return
    except BrokenError as error:
        raise session.broken(error, rules.ARGUMENTS, f"with {given}: {error}") from error
    oracle, found = Oracle(given), Findings()
    if [leaf.shape for _, leaf in lease.spec.leaves()] == [(4,)]:
        for group in lease.groups:
            compare(group, lease.rows[group], lease.acted[group], oracle, found)
    for finding in found.errors:
        if not session.findings.has(finding.rule):  # else it is not for want of arguments
            session.findings.add(rules.ARGUMENTS, f"with {given}: {finding.text}", subject=given)
    session.end(stream, grpc.StatusCode.UNAVAILABLE)


class Oracle:
    """What follows from a state and an action, with these arguments of the environment.

    Attributes:
      longest_steps: of an episode.
    """

    def __init__(self, arguments: str = "") -> None:
        """`arguments` is a JSON object; raises what gymnasium raises for unknown ones."""
        built = gymnasium.make(CARTPOLE, **json.loads(arguments or "{}"))
        assert built.spec is not None and isinstance(built.unwrapped, CartPoleEnv)
        self.longest_steps = built.spec.max_episode_steps or sys.maxsize
        self._environment = built.unwrapped

    def step(self, state: np.ndarray, action: int) -> tuple[np.ndarray, float]:
        """The next state, and the reward of the step that led there."""
        self._environment.reset()
        self._environment.state = state.astype(np.float64)
        observation, reward, *_ = self._environment.step(action)
        return np.asarray(observation, np.float64), float(reward)


class Due(NamedTuple):
    """What a step should give: its reward, steps of the episode so far, whether that is all."""

    reward: float
    length: int
    is_full: bool


def compare(
    group: int,
    rows: Sequence[TimeStep],
    acted: Sequence[np.ndarray],
    oracle: Oracle,
    findings: Findings,
) -> None:
    """Adds what is wrong with a group's steps, given the actions between them."""
    lengths = np.zeros(len(rows[0].step_type), int)
    starts: dict[int, np.ndarray] = {}
    for number, row in enumerate(rows):
        for env, is_type in enumerate(row.step_type):
            place = f"group {group}, row {env}, step {number}"
            observation = row.observation[env]
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
            expected, reward = oracle.step(before, int(acted[number - 1][env]))
            if not np.allclose(observation, expected, atol=_TOLERANCE):
                findings.add(
                    rules.ORACLE_STEP,
                    f"{place}: from {_show(before)} by action {acted[number - 1][env]} expected "
                    f"{_show(expected)}, got {_show(observation)}",
                )
            length = int(lengths[env])
            due = Due(reward, length, length >= oracle.longest_steps)
            _check_outcome(place, row, env, due, findings)


def _check_outcome(place: str, row: TimeStep, env: int, due: Due, findings: Findings) -> None:
    """Reward and end of a step, due where the pole is now."""
    state = row.observation[env]
    margin = min(2.4 - abs(state[0]), math.radians(12) - abs(state[2]))
    if abs(margin) < _TOLERANCE:
        return  # either may be right
    if row.reward[env] != due.reward:
        text = f"expected reward {due.reward:g}, got {row.reward[env]:g}"
        findings.add(rules.ORACLE_REWARD, f"{place}: {text}")
    end = row.step_type[env] == StepType.LAST, float(row.discount[env])
    wanted = bool(margin < 0 or due.is_full), 0.0 if margin < 0 else 1.0
    if end != wanted:
        text = f"at {_show(state)} expected {_named(wanted)}, got {_named(end)}"
        findings.add(rules.ORACLE_END, f"{place}: after {due.length} steps {text}")


def _named(end: tuple[bool, float]) -> str:
    is_last, discount = end
    return f"{'LAST' if is_last else 'MID'} with discount {discount:g}"


def _show(numbers: np.ndarray) -> str:
    return f"[{', '.join(f'{number:.5g}' for number in numbers)}]"
