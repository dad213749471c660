"""What CartPole-v1 is compared with: one as it should be passes, any other is named."""

import numpy as np
import pytest

from envs_server.conformance.findings import Findings
from envs_server.server_conformance import cartpole
from seedrl.types import TimeStep
from tests.envs_server.server_conformance.example_server import LAST, CartPole

_STEPS = 502  # to the time limit, LAST, and FIRST


def found(kind: type[CartPole], arguments: str = "") -> dict[str, str]:
    """The rules that one environment breaks, balanced, and another, pushed to one side."""
    envs = [kind(0), kind(1)]
    for env in envs:
        env.reset()
    rows, acted = [_row(envs)], []
    for _ in range(_STEPS):
        is_right = (rows[-1].observation[0] @ cartpole._BALANCE > 0).astype(np.int32)
        acted.append(np.array([is_right, 1], np.int32))
        for env, action in zip(envs, acted[-1].tolist(), strict=True):
            env.step(action)
        rows.append(_row(envs))
    findings = Findings()
    cartpole.compare(0, rows, acted, cartpole.Oracle(arguments), findings)
    return {finding.rule.name: finding.text for finding in findings.errors}


def _row(envs: list[CartPole]) -> TimeStep:
    return TimeStep(
        np.array([env.step_type for env in envs], np.uint8),
        np.array([env.reward for env in envs], np.float32),
        np.array([env.discount for env in envs], np.float32),
        np.array([env.state for env in envs], np.float32),
    )


class OtherIntegrator(CartPole):
    def end(self) -> None:
        self.state[2] += 0.02 * 0.02 * 15
        super().end()


class TimeLimitTerminates(CartPole):
    def end(self) -> None:
        super().end()
        if self.length == 500:
            self.discount = 0.0


class NoTimeLimit(CartPole):
    def end(self) -> None:
        length, self.length = self.length, 0
        super().end()
        self.length = length


class FallsForFree(CartPole):
    def end(self) -> None:
        super().end()
        self.discount = 1.0


class WideStart(CartPole):
    def reset(self) -> None:
        super().reset()
        self.state *= 3


class StartsAlike(CartPole):
    def reset(self) -> None:
        super().reset()
        self.state = np.full(4, 0.01)


class Doubled(CartPole):
    def end(self) -> None:
        super().end()
        self.reward = 2.0


def test_cartpole_as_it_should_be_passes() -> None:
    assert found(CartPole) == {}


class SuttonBarto(CartPole):
    def end(self) -> None:
        super().end()
        self.reward = -1.0 if self.discount == 0.0 else 0.0


class Of100Steps(CartPole):
    def end(self) -> None:
        super().end()
        if self.length == 100:
            self.step_type = LAST


@pytest.mark.parametrize(
    ("kind", "arguments", "rule"),
    [
        (SuttonBarto, '{"sutton_barto_reward": true}', "cartpole-reward"),
        (Of100Steps, '{"max_episode_steps": 100}', "cartpole-end"),
    ],
)
def test_what_arguments_change_is_expected_of_cartpole(
    kind: type[CartPole], arguments: str, rule: str
) -> None:
    assert found(kind, arguments) == {}
    assert list(found(CartPole, arguments)) == list(found(kind)) == [rule]


@pytest.mark.parametrize(
    ("kind", "rule", "text"),
    [
        (OtherIntegrator, "cartpole-step", "by action "),
        (TimeLimitTerminates, "cartpole-end", "expected LAST with discount 1, got LAST with disc"),
        (NoTimeLimit, "cartpole-end", "after 500 steps at "),
        (FallsForFree, "cartpole-end", "expected LAST with discount 0, got LAST with discount 1"),
        (WideStart, "cartpole-start", "expected numbers within 0.05 of 0, got ["),
        (StartsAlike, "cartpole-seed", "expected another start than that of the episode before"),
        (Doubled, "cartpole-reward", "group 0, row 0, step 1: expected reward 1, got 2"),
    ],
)
def test_any_other_is_named(kind: type[CartPole], rule: str, text: str) -> None:
    rules = found(kind)
    assert list(rules) == [rule]
    assert text in rules[rule]
