"""A group that waits holds back no other, and what its thread raises ends the stream."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any, ClassVar

import grpc
import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec

from envs_server.faults.group_threads import GroupThreads
from envs_server.reconnecting_client import ReconnectingClient
from seedrl.exit_codes import ExitCode
from seedrl.wire.action_layout import read_header
from seedrl.wire.framing import ActionsPayload
from seedrl.wire.payload import pack_actions
from seedrl.wire.seedrl_pb2 import Environment, Finish, FromLearner
from seedrl.wire.version import MINOR_OF_FAILURE
from tests.patience import SECONDS

_FINISH = FromLearner(finish=Finish(reason="enough"))
_WAIT, _RAISE, _GO_ON = range(3)


class Obedient(gymnasium.Env[np.ndarray, int]):
    """Does what its action says, and notes in which thread."""

    may_go_on = threading.Event()
    threads: ClassVar[dict[int, set[str]]] = {}
    observation_space = gymnasium.spaces.Box(0, 1, (1,))
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self) -> None:
        self._number = len(Obedient.threads)
        Obedient.threads[self._number] = set()
        self._note()

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._note()
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> Any:
        self._note()
        if action == _WAIT:
            assert Obedient.may_go_on.wait(SECONDS)
        if action == _RAISE:
            raise RuntimeError("no licence")
        return np.zeros(1, np.float32), 0.0, False, False, {}

    def close(self) -> None:
        self._note()

    def _note(self) -> None:
        Obedient.threads[self._number].add(threading.current_thread().name)


@pytest.fixture
def obedient(monkeypatch: pytest.MonkeyPatch) -> Environment:
    spec = EnvSpec("Obedient-v0", entry_point=Obedient)
    monkeypatch.setitem(gymnasium.registry, "Obedient-v0", spec)
    monkeypatch.setattr(Obedient, "may_go_on", threading.Event())
    monkeypatch.setattr(Obedient, "threads", {})
    return Environment(id="Obedient-v0")


def _answer(group: int, sequence: int, action: int) -> ActionsPayload:
    return ActionsPayload(pack_actions(group, sequence, np.array([action], np.int32)))


def _begun(learner: Any, messages: Iterator[Any], environment: Environment) -> Iterator[Any]:
    """The handshake with two groups of one environment, and their first steps."""
    next(messages)
    assign = learner.assign([1], [2], environment=environment)
    assign.assign.minor = MINOR_OF_FAILURE
    yield assign
    assert next(messages).HasField("ready")
    assert [read_header(next(messages)).group for _ in range(2)] == [0, 1]


def test_a_group_that_waits_holds_back_no_other_and_has_one_thread(
    learner: Any, obedient: Environment
) -> None:
    seen: list[tuple[int, int]] = []

    def script(messages: Iterator[Any], context: Any) -> Iterator[Any]:
        yield from _begun(learner, messages, obedient)
        yield _answer(0, 0, _WAIT)
        for sequence in range(20):
            yield _answer(1, sequence, _GO_ON)
            seen.append(read_header(next(messages))[::2])
        Obedient.may_go_on.set()
        seen.append(read_header(next(messages))[::2])
        yield _FINISH

    learner.serve(script)
    assert learner.run(2, 2, group_threads=True).wait() is ExitCode.OK
    assert seen == [*((1, sequence) for sequence in range(1, 21)), (0, 1)]
    assert Obedient.threads == {0: {"group 0"}, 1: {"group 1"}}


def test_one_group_alone_needs_no_thread(learner: Any, obedient: Environment) -> None:
    learner.serve(learner.play(learner.assign([1], environment=obedient), 1))
    learner.run(1, 1, group_threads=True).wait()
    (threads,) = Obedient.threads[0]
    assert not threads.startswith("group")


def test_an_environment_that_raises_in_its_groups_thread_is_reported_and_built_again(
    learner: Any,
    obedient: Environment,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ReconnectingClient, "_wait", lambda client, seconds: None)
    reported: list[str] = []

    def fail(messages: Iterator[Any], context: Any) -> Iterator[Any]:
        yield from _begun(learner, messages, obedient)
        yield _answer(1, 0, _RAISE)
        reported.append(next(messages).failure.reason)

    def finish(messages: Iterator[Any], context: Any) -> Iterator[Any]:
        yield from _begun(learner, messages, obedient)
        yield _FINISH

    learner.serve(fail, finish)
    assert learner.run(2, 2, group_threads=True).wait() is ExitCode.OK
    reason = "environment 1 (slot 1), step 1 of group 1: RuntimeError: no licence"
    assert reported == [reason]
    assert f"{reason} (failure 1 within an hour)" in caplog.messages


def test_actions_that_nobody_has_asked_for_are_not_collected(
    learner: Any, obedient: Environment, caplog: pytest.LogCaptureFixture
) -> None:
    def script(messages: Iterator[Any], context: Any) -> Iterator[Any]:
        context.add_callback(Obedient.may_go_on.set)  # nobody may come back to this script
        yield from _begun(learner, messages, obedient)
        yield _answer(0, 0, _WAIT)
        yield _answer(0, 0, _WAIT)
        with contextlib.suppress(grpc.RpcError):
            assert next(messages, None) is None

    learner.serve(script)
    assert learner.run(2, 2, group_threads=True).wait() is ExitCode.USAGE
    assert "expected no actions for group 0 before its next step, got some" in caplog.text


def test_whatever_is_raised_is_noted_and_the_thread_lives_on() -> None:
    errors: list[BaseException] = []
    noted = threading.Event()

    def note(error: BaseException) -> None:
        errors.append(error)
        noted.set()

    threads = GroupThreads(2, note)
    fault = KeyboardInterrupt()

    def interrupt() -> None:
        raise fault

    threads.hand_over(1, interrupt, lambda _: None)
    assert noted.wait(SECONDS)
    with pytest.raises(KeyboardInterrupt):
        threads.call(1, interrupt)
    assert threads.call(1, lambda: threading.current_thread().name) == "group 1"
    threads.close()
    assert threads.error is fault
    assert errors == [fault]
