"""When an env server comes back to its learner, and when it gives up."""

import contextlib
import itertools
import logging
import random
import time
from collections.abc import Iterator
from typing import Any, ClassVar

import grpc
import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, VectorEnv

from envs_server import client as client_module
from envs_server.client import Client
from envs_server.options import Options
from envs_server.stop import Stop
from seedrl.exit_codes import ExitCode
from seedrl.wire import link
from seedrl.wire.seedrl_pb2 import Environment, Finish, FromLearner
from tests.patience import SECONDS


@pytest.mark.parametrize("learner", ["stream"], indirect=True)
@pytest.mark.parametrize("code", [grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.INTERNAL])
def test_it_gives_up_only_when_the_learner_will_never_want_it(
    learner: Any,
    caplog: pytest.LogCaptureFixture,
    code: grpc.StatusCode,
) -> None:
    learner.serve(
        learner.abort(code, "observation: expected uint8[4]"), learner.play(learner.assign([1]), 1)
    )
    ended = learner.run(1, 1).wait()
    is_fatal = code is grpc.StatusCode.FAILED_PRECONDITION
    assert ended is (ExitCode.USAGE if is_fatal else ExitCode.OK)
    assert "observation: expected uint8[4]" in caplog.text


def test_it_waits_for_a_learner_and_comes_back_after_every_kind_of_end(
    learner: Any, caplog: pytest.LogCaptureFixture
) -> None:
    run = learner.run(1, 1)
    learner.serve(
        learner.abort(grpc.StatusCode.UNAVAILABLE, "stopping"),
        learner.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "all slots are leased"),
        learner.play(learner.assign([1 << 16]), 4, last=None),
        learner.play(learner.assign([2 << 16]), 4),
    )
    assert run.wait() is ExitCode.OK
    incarnations = [int(step.timestep.observation[0, 1]) for step in learner.seen]
    assert incarnations == [1] * 4 + [2] * 4
    assert "waiting for the learner" in caplog.messages[0]
    assert "the learner ended the stream" in caplog.messages[-1]


class FailingVector(VectorEnv[Any, Any, Any]):
    """Two environments of one implementation, which raises at its third step."""

    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": AutoresetMode.NEXT_STEP}
    num_envs = 2
    single_observation_space = gymnasium.spaces.Box(0, 1, (1,))
    single_action_space = gymnasium.spaces.Discrete(2)
    left = 3
    is_over = False  # every episode at its first step

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return np.zeros((2, 1), np.float32), {}

    def step(self, actions: Any) -> Any:
        self.left -= 1
        if not self.left:
            raise RuntimeError("the emulator\nhas crashed")
        over = np.full(2, self.is_over and self.left == 2)
        return np.zeros((2, 1), np.float32), np.zeros(2), over, np.zeros(2, bool), {}


class Moody(gymnasium.Env[np.ndarray, int]):
    """Those of `order` that are named in `bad` raise; shows its number. Later ones are number 1."""

    bad: ClassVar[dict[int, str]] = {}
    order: ClassVar[Iterator[int]] = iter(())
    observation_space = gymnasium.spaces.Box(0, 9, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        self._number = next(Moody.order, 1)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._fail("reset")
        return np.full(1, self._number, np.float32), {}

    def step(self, action: int) -> Any:
        self._fail("step")
        return np.full(1, self._number, np.float32), 0.0, False, False, {}

    def _fail(self, where: str) -> None:
        if Moody.bad.get(self._number) == where:
            raise RuntimeError("no licence")


@pytest.fixture
def moody(monkeypatch: pytest.MonkeyPatch) -> Environment:
    monkeypatch.setitem(gymnasium.registry, "Moody-v0", EnvSpec("Moody-v0", entry_point=Moody))
    monkeypatch.setattr(Moody, "order", iter(range(3)))
    monkeypatch.setattr(random, "uniform", lambda low, high: 0.0)
    return Environment(id="Moody-v0", failures_per_hour=3)


@pytest.mark.parametrize("learner", ["stream"], indirect=True)
@pytest.mark.parametrize("where", ["reset", "step"])
def test_one_of_three_that_always_fails_is_left_out_and_the_others_go_on(
    learner: Any, moody: Environment, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Moody, "bad", {1: where})
    hellos: list[Any] = []

    def play(messages: Iterator[Any], context: Any) -> Iterator[Any]:
        hello = next(messages)
        hellos.append(hello.hello)
        Moody.order = iter([0, 1, 2] if hello.hello.num_envs == 3 else [0, 2])
        seeds = [[5, 6, 7]] if hello.hello.num_envs == 3 else [[5, 7]]
        with contextlib.suppress(grpc.RpcError, StopIteration):
            assign = learner.assign(*seeds, environment=moody)
            yield from learner.play(assign, 9)(itertools.chain([hello], messages), context)

    learner.serve(*[play] * 3)
    # Before Ready there is nothing to tell the learner, and no end to wait for.
    monkeypatch.setattr(client_module, "GRACE_SECONDS", SECONDS)
    start = time.monotonic()
    client = Client(Options(learner=learner.address, num_envs=3, groups=1), Stop())
    assert client.run() is ExitCode.OK
    assert time.monotonic() - start < SECONDS
    assert [hello.num_envs for hello in hellos] == [3, 2]
    assert [hello.num_quarantined for hello in hellos] == [0, 1]
    assert "environment 1 (slot 1), " in hellos[-1].quarantine
    assert f"RuntimeError: no licence ({__file__}:" in hellos[-1].quarantine
    # While it had a budget its failures cost the others nothing.
    types = np.array([step.timestep.step_type for step in learner.seen if step.sequence < 4][:4])
    if where == "step":
        assert types.T.tolist() == [[0, 1, 1, 1], [0, 0, 0, 0], [0, 1, 1, 1]]
    assert learner.seen[-1].timestep.observation.tolist() == [[0], [2]]


# That no episode ever ended is the environment's fault: another process would do no better.
@pytest.mark.parametrize("learner", ["stream"], indirect=True)
@pytest.mark.parametrize("has_ended", [False, True])
def test_a_failure_of_a_vector_implementation_ends_the_stream_and_is_reported(
    learner: Any,
    has_ended: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(FailingVector, "is_over", has_ended)
    spec = EnvSpec("Vectors-v0", vector_entry_point=lambda num_envs: FailingVector())
    monkeypatch.setitem(gymnasium.registry, spec.id, spec)
    monkeypatch.setattr(random, "uniform", lambda low, high: 0.0)
    environment = Environment(id=spec.id, failures_per_hour=3)
    reasons: list[str] = []

    def play(messages: Iterator[Any], context: Any) -> Iterator[Any]:
        assign = learner.assign([1, 2], environment=environment)
        with contextlib.suppress(grpc.RpcError):
            yield from learner.play(assign, 3, last=None)(messages, context)
            reasons.append(next(messages).failure.reason)

    learner.serve(*[play] * 9)
    client = Client(Options(learner=learner.address, num_envs=2, groups=1), Stop())
    assert client.run() is (ExitCode.TEMPORARY if has_ended else ExitCode.USAGE)
    reason = "step of environments 0 to 1: RuntimeError: the emulator has crashed"
    assert len(reasons) == 4 and all(reason in each for each in reasons)
    problems = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert len(problems) == 4 and all(reason in each for each in problems)
    assert [step.sequence for step in learner.seen] == [0, 1, 2] * 4


@pytest.mark.parametrize("learner", ["stream"], indirect=True)
def test_training_that_is_over_while_an_environment_fails_is_over(
    learner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its Finish crossed the Failure, was thrown away, and the env server returned for ever."""
    spec = EnvSpec("Vectors-v0", vector_entry_point=lambda num_envs: FailingVector())
    monkeypatch.setitem(gymnasium.registry, spec.id, spec)

    def play(messages: Iterator[Any], context: Any) -> Iterator[Any]:
        assign = learner.assign([1, 2], environment=Environment(id=spec.id))
        yield from learner.play(assign, 3, last=None)(messages, context)
        assert next(messages).failure.reason
        yield FromLearner(finish=Finish(reason="enough"))

    learner.serve(play)
    assert learner.run(2).wait() is ExitCode.OK


class Late(FailingVector):
    """Its spaces, or its constructor, are as `does` says; it never fails."""

    left = 0
    does: ClassVar[Iterator[Any]] = iter(())

    def __init__(self) -> None:
        size = next(Late.does, 1)
        if not size:
            raise RuntimeError("no licence")
        self.single_observation_space = gymnasium.spaces.Box(0, 1, (size,))
        if size > 1:
            self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}


@pytest.mark.parametrize("learner", ["stream"], indirect=True)
@pytest.mark.parametrize("wrong", [0, 2])
def test_a_construction_that_fails_at_a_reconnect_is_tried_again(
    learner: Any, wrong: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was taken for wrong usage, and the run ended."""
    spec = EnvSpec("Late-v0", vector_entry_point=lambda num_envs: Late())
    monkeypatch.setitem(gymnasium.registry, spec.id, spec)
    monkeypatch.setattr(random, "uniform", lambda low, high: 0.0)
    monkeypatch.setattr(Late, "does", iter([1, wrong, wrong, 1]))
    assign = learner.assign([1, 2], environment=Environment(id=spec.id))

    def play(messages: Iterator[Any], context: Any) -> Iterator[Any]:
        with contextlib.suppress(StopIteration, grpc.RpcError):
            last = None if len(learner.seen) < 3 else learner_finish
            yield from learner.play(assign, 3, last=last)(messages, context)

    learner_finish = FromLearner(finish=Finish(reason="enough"))
    learner.serve(*[play] * 4)
    options = Options(learner=learner.address, num_envs=2, groups=1)
    assert Client(options, Stop()).run() is ExitCode.OK
    assert [step.sequence for step in learner.seen] == [0, 1, 2] * 2
    # The very first one of a process that was never served is wrong usage.
    monkeypatch.setattr(Late, "does", iter([wrong] * 9))
    learner.close()
    learner.serve(*[play] * 4)
    assert Client(options, Stop()).run() is ExitCode.USAGE


@pytest.mark.parametrize("learner", ["stream"], indirect=True)
def test_a_breach_after_it_was_served_may_be_an_environments_doing(learner: Any) -> None:
    """One that writes to all descriptors ended the run, as a refusal does."""

    def refuse(messages: Iterator[Any], context: Any) -> Iterator[Any]:
        yield from learner.play(learner.assign([1]), 3, last=None)(messages, context)
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "expected a step, got noise")

    learner.serve(refuse)
    assert learner.run(1, 1).wait() is ExitCode.TEMPORARY
    learner.close()
    learner.serve(learner.abort(grpc.StatusCode.INVALID_ARGUMENT, "expected Hello"))
    assert learner.run(1, 1).wait() is ExitCode.USAGE


def test_actions_that_do_not_fit_into_the_link_take_grpc(
    learner: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    takes_link = learner.takes_link
    monkeypatch.setattr(link, "_ROOM_BYTES", 2**12)
    num_envs = 2**10  # each with an action of 4 bytes

    def play(messages: Iterator[Any], context: Any) -> Iterator[Any]:
        learner.takes_link = False  # the next stream is to do without
        hello = next(messages)
        offered.append(hello.hello.link)
        script = learner.play(learner.assign(list(range(num_envs))), 2)
        yield from script(itertools.chain([hello], messages), context)

    offered: list[str] = []
    learner.serve(play, play)
    assert learner.run(num_envs).wait() is ExitCode.OK
    assert [bool(link) for link in offered] == ([True, False] if takes_link else [True])
    assert [step.sequence for step in learner.seen] == [0, 1]
    assert ("from now on over gRPC" in caplog.text) == takes_link
