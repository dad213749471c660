"""A sound env server passes, and whatever is broken in one is named by the rule it breaks."""

import dataclasses
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from envs_server.server_conformance import cartpole, dialogues, endings
from envs_server.server_conformance.check import Dialogue, all_dialogues, check, known_spec
from envs_server.server_conformance.played_learner import PlayedStream
from envs_server.server_conformance.session import CARTPOLE
from seedrl.wire.seedrl_pb2 import (
    Assign,
    Environment,
    Failure,
    FromEnvServer,
    FromLearner,
    Group,
    Hello,
    Sent,
)
from tests.envs_server.server_conformance.broken_rules import PLAN, broken_rules
from tests.envs_server.server_conformance.example_server import (
    LAST,
    MID,
    CartPole,
    ExampleServer,
    OwnDefectError,
)
from tests.patience import SECONDS

pytestmark = pytest.mark.usefixtures("quick")


def _steps(session: Any) -> None:
    dialogues.steps(session, known_spec(PLAN.environment))


def test_a_sound_env_server_passes() -> None:
    server = ExampleServer()
    report = check(server, PLAN)
    assert [finding.line() for finding in [*report.findings.errors, *report.findings.notes]] == []
    assert report.num_dialogues == len(all_dialogues(PLAN)) == 20
    assert report.num_streams > 25 and report.num_steps > 1000
    refused = "it refuses them, as it may (only CartPole-v1 is known)"
    assert report.skipped == [
        "the local socket: Hello offers none (link)",
        f'episodes with {{"max_episode_steps": 10}}: {refused}',
        f'episodes with {{"sutton_barto_reward": true}}: {refused}',
    ]
    given = dataclasses.replace(PLAN, environment=Environment(id=CARTPOLE, arguments='{"a": 1}'))
    assert len(all_dialogues(given)) == 18


@pytest.mark.parametrize("num_envs", [1, 2])
def test_an_env_server_of_few_environments_passes(num_envs: int) -> None:
    chosen = [_steps, dialogues.groups, cartpole.cartpole]
    report = check(ExampleServer(num_envs), PLAN, chosen)
    assert [finding.line() for finding in [*report.findings.errors, *report.findings.notes]] == []
    skipped = "several groups: it offers one environment, or one group"
    assert report.skipped == ([skipped] if num_envs == 1 else [])


class OldVersion(ExampleServer):
    def hello(self) -> Hello:
        hello = super().hello()
        hello.major = 1
        return hello


class NoHello(ExampleServer):
    def send(self, message: FromEnvServer) -> None:
        super().send(FromEnvServer(step=b"") if message.HasField("hello") else message)


class Empty(ExampleServer):
    def send(self, message: FromEnvServer) -> None:
        super().send(FromEnvServer() if message.HasField("step") else message)


class Fails(ExampleServer):
    def step(self, group: int, actions: np.ndarray) -> None:
        self.send(FromEnvServer(failure=Failure(reason="no licence")))


class Impatient(ExampleServer):
    def send(self, message: FromEnvServer) -> None:
        super().send(message)
        if message.HasField("hello"):
            super().send(FromEnvServer(step=b"too early"))


class BareSpec(ExampleServer):
    def spec(self) -> dict[str, Any]:
        return {"num_actions": 2, "observation": {"dtype": "float32", "shape": [4]}}


class OtherSpec(ExampleServer):
    actions = frozenset({0, 1, 2})

    def spec(self) -> dict[str, Any]:
        return {**super().spec(), "action": {"discrete": 3}}


class Unpadded(ExampleServer):
    def padded(self, section: bytes) -> bytes:
        return section


class Infinite(CartPole):
    def end(self) -> None:
        super().end()
        self.reward = np.inf


class EndsWithZero(CartPole):
    def reset(self) -> None:
        super().reset()
        self.discount = 0.0


class FromOne(ExampleServer):
    def payload(self, group: int, sequence: int) -> bytes:
        return super().payload(group, sequence + 1)


class Hasty(ExampleServer):
    def send_step(self, group: int) -> None:
        super().send_step(group)
        super().send_step(group)


class SameStepReset(CartPole):
    """As gymnasium's SAME_STEP autoreset: after LAST the first observation is lost."""

    def end(self) -> None:
        super().end()
        if self.step_type == LAST:
            super().reset()
            self.step_type, self.reward = LAST, 1.0

    def step(self, action: int) -> None:
        if self.step_type == LAST:
            self.step_type = MID
        super().step(action)


class AllTogether(ExampleServer):
    def handle(self, message: FromLearner) -> None:
        if message.actions and struct.unpack_from("<I", message.actions)[0] != 0:
            raise OwnDefectError("group 0 comes first")
        super().handle(message)


class OneAMessage(ExampleServer):
    def handle(self, message: FromLearner) -> None:
        if len(message.actions) > 24:
            raise OwnDefectError("too many actions")
        super().handle(message)


class AllThatIsOffered(ExampleServer):
    def build_group(self, group: Group) -> list[CartPole]:
        return [self.cartpole(seed) for seed in range(self.num_envs)]

    def step(self, group: int, actions: np.ndarray) -> None:
        super().step(group, np.resize(actions, self.num_envs))


class OtherMetrics(ExampleServer):
    def metrics(self, assign: Assign) -> list[str]:
        return ["speed"]


class MissingMetrics(ExampleServer):
    def metrics(self, assign: Assign) -> list[str]:
        return list(assign.environments[0].metrics)


class ZeroMetrics(ExampleServer):
    """Gives 0 for what is not asked for."""

    def metrics(self, assign: Assign) -> list[str]:
        return list(assign.environments[0].metrics)

    def payload(self, group: int, sequence: int) -> bytes:
        num_last = sum(env.step_type == LAST for env in self.envs[group])
        numbers = [0.0, np.nan] * num_last
        return super().payload(group, sequence) + np.array(numbers, "<f4").tobytes()


class Strict(ExampleServer):
    def build(self, assign: Assign) -> None:
        if b"\xc0\x3e" in assign.SerializeToString():
            raise OwnDefectError("unknown field 1000")
        super().build(assign)


class Unseeded(CartPole):
    def __init__(self, seed: int) -> None:
        super().__init__(np.random.default_rng().integers(2**31).item())


class OneSeed(CartPole):
    def __init__(self, seed: int) -> None:
        super().__init__(0)


class ForgetsReport(ExampleServer):
    def report(self) -> list[Sent]:
        return []


class CountsTwice(ExampleServer):
    def report(self) -> list[Sent]:
        sent = super().report()
        for each in sent:
            each.steps *= 2
        return sent


class LikeJavaScript(ExampleServer):
    """Numbers of 64 bits are rounded to doubles."""

    def report(self) -> list[Sent]:
        sent = super().report()
        for each in sent:
            each.lease = int(float(each.lease)) % 2**64
        return sent


class OneGroupOnly(ExampleServer):
    def report(self) -> list[Sent]:
        return super().report()[:1]


class GivesUp(ExampleServer):
    def after_status(self, code: str) -> int | None:
        return 1 if code == "ABORTED" else super().after_status(code)


class Stubborn(ExampleServer):
    def after_status(self, code: str) -> int | None:
        return None if code == "PERMISSION_DENIED" else super().after_status(code)


class Cheerful(ExampleServer):
    def after_status(self, code: str) -> int | None:
        return 0 if super().after_status(code) else None


class Endless(ExampleServer):
    def after_finish(self) -> int | None:
        return None


class Sad(ExampleServer):
    def after_finish(self) -> int | None:
        return 1


class TakesAnything(ExampleServer):
    def known_arguments(self) -> Sequence[str]:
        return ["", '{"seedrl_no_such_argument": 1}']


class IgnoresArguments(ExampleServer):
    def known_arguments(self) -> Sequence[str]:
        return ['{"max_episode_steps": 10}', '{"sutton_barto_reward": true}']


class CheerfulRefusal(ExampleServer):
    def after_status(self, code: str) -> int | None:
        return 0 if self.is_refused else super().after_status(code)


class BuildsAnything(ExampleServer):
    def known(self) -> Sequence[str]:
        return ["CartPole-v1", "seedrl-no-such-environment-v0"]


def _with(environment: type[CartPole]) -> type[ExampleServer]:
    return type(environment.__name__, (ExampleServer,), {"cartpole": environment})


@pytest.mark.parametrize(
    ("server", "dialogue", "rule", "text"),
    [
        (OldVersion, _steps, "version", "expected major 2, got 1"),
        (NoHello, _steps, "hello", "expected Hello as the first message, got step"),
        (Empty, _steps, "message", "expected a FromEnvServer message, got no bytes"),
        (Fails, _steps, "failure", "expected a step of group 0, got Failure: no licence"),
        (BareSpec, _steps, "spec", "expected an object with action and observation"),
        (OtherSpec, _steps, "spec-differs", "expected 2 discrete actions, got 3"),
        (Unpadded, _steps, "payload", "expected a step payload of"),
        (_with(Infinite), _steps, "payload", "expected finite numbers in reward, got inf"),
        (_with(EndsWithZero), _steps, "payload", "expected discount 1, or 0 on LAST"),
        (FromOne, _steps, "sequence", "group 0: expected sequence 0, got 1"),
        (Hasty, _steps, "one-in-flight", "group 0: expected no step before its actions"),
        (_with(SameStepReset), _steps, "episode-order", "expected FIRST after LAST, got MID"),
        (AllTogether, dialogues.groups, "groups", "while group 0 waits for actions: expected"),
        (OneAMessage, dialogues.groups, "groups", "after one message with the actions of 3"),
        (AllThatIsOffered, dialogues.fewer, "fewer-environments", "expected a step of 1 env"),
        (OtherMetrics, dialogues.metrics, "metrics", "each once, got ['speed']"),
        (MissingMetrics, dialogues.metrics, "metrics", "expected a step payload of"),
        (ZeroMetrics, dialogues.metrics, "metrics", "group 1: expected NaN for episode.r, which"),
        (Strict, dialogues.fewer, "fewer-environments", "expected Ready or Refusal, the env"),
        (_with(Unseeded), dialogues.seeds, "seeds", "group 0, step 0: expected the same as in"),
        (_with(OneSeed), dialogues.seeds, "cartpole-seed", "with other seeds 60 steps of group"),
        (ForgetsReport, endings.returns, "sent-missing", "Hello reports nothing of the lease"),
        (CountsTwice, endings.returns, "sent", "after OK: group 0: expected steps of answered"),
        (LikeJavaScript, endings.returns, "sent", "after OK: expected a report of lease "),
        (OneGroupOnly, endings.returns, "sent", "after OK: expected each of groups 0 to 2 once"),
        (GivesUp, endings.returns, "return", "a stream after ABORTED, the env server ended with"),
        (Stubborn, endings.stays_away, "never-return", "no stream after PERMISSION_DENIED, got"),
        (Cheerful, endings.stays_away, "error-code", "after INVALID_ARGUMENT the exit code was 0"),
        (Endless, endings.finish, "finish", "expected no stream after Finish, got another"),
        (Sad, endings.finish, "finish", "expected exit code 0 after Finish, got 1"),
        (BuildsAnything, dialogues.refusal, "refusal", "expected a Refusal of seedrl-no-such"),
        (IgnoresArguments, cartpole.limited, "arguments", '{"max_episode_steps": 10}: group '),
        (IgnoresArguments, cartpole.sutton_barto, "arguments", "expected reward 0, got 1"),
        (TakesAnything, dialogues.arguments, "arguments", "a Refusal of CartPole-v1 with {"),
    ],
)
def test_what_is_broken_is_named(
    server: type[ExampleServer], dialogue: Dialogue, rule: str, text: str
) -> None:
    found = broken_rules(server(), dialogue)
    assert list(found) == [rule]
    assert text in found[rule]


def test_exit_code_0_after_a_refusal_fails_the_check() -> None:
    (error,) = check(CheerfulRefusal(), PLAN, [dialogues.refusal]).errors
    assert (error.rule.name, error.text) == ("error-code", "after a Refusal the exit code was 0")


def test_what_may_be_meant_in_other_environments_is_a_note() -> None:
    class Other(TakesAnything):
        cartpole = OneSeed

        def known(self) -> Sequence[str]:
            return ["Other-v0"]

    plan = dataclasses.replace(PLAN, environment=Environment(id="Other-v0"))
    chosen = [dialogues.seeds, dialogues.arguments]
    assert list(broken_rules(Other(), *chosen, plan=plan)) == ["seed-ignored", "arguments-taken"]


class Silent(ExampleServer):
    def send(self, message: FromEnvServer) -> None:
        pass


class SilentOnceAssigned(ExampleServer):
    def send(self, message: FromEnvServer) -> None:
        if not message.HasField("step"):
            super().send(message)


@pytest.mark.parametrize("server", [Silent, SilentOnceAssigned])
def test_who_never_says_what_it_must_is_not_asked_nineteen_times(
    server: type[ExampleServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    receive = PlayedStream.receive
    monkeypatch.setattr(PlayedStream, "receive", lambda self, seconds: receive(self, 0.2))
    report = check(server(), PLAN)
    assert [finding.rule.name for finding in report.findings.errors] == ["silence"]
    assert report.num_dialogues == 1
    assert report.skipped == ["19 more dialogues: this one must succeed"]


def test_what_is_broken_in_every_dialogue_is_said_once() -> None:
    found = broken_rules(Unpadded(), _steps, dialogues.groups, dialogues.fewer, dialogues.metrics)
    assert list(found) == ["payload"]
    assert found["payload"].startswith(
        "expected a step payload of 72 bytes, got 66: 16 header + 8 step_type + 8 reward + "
    )


def test_who_does_not_wait_for_assign_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialogues, "_EARLY_SECONDS", SECONDS)
    found = broken_rules(Impatient(), _steps)
    assert found == {"hello": "expected to wait for Assign after Hello, got step"}


class Tired(ExampleServer):
    """Takes three actions and then, after a pause, no more."""

    def step(self, group: int, actions: np.ndarray) -> None:
        if self.sent[group][1] > 3:
            raise OwnDefectError("no actions for too long")
        super().step(group, actions)


def test_who_does_not_wait_for_actions_is_named() -> None:
    found = broken_rules(Tired(), dialogues.waiting)
    assert list(found) == ["patience"]
    assert found["patience"].startswith("after 0 seconds without actions: expected a step of group")
