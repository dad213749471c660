"""When an env server comes back to its learner, and when it gives up."""

import contextlib
import itertools
import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import grpc
import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec

from envs_server import building
from envs_server.backends import sync
from envs_server.connection import Offer
from envs_server.faults.keeper import Keeper
from envs_server.faults.quarantine import Quarantine
from envs_server.faults.watchdog import Watch
from envs_server.recipe import Recipe
from envs_server.reconnecting_client import ReconnectingClient
from envs_server.stop import Stop
from envs_server.vector import VectorEnvironment
from seedrl.exit_codes import ExitCode
from seedrl.wire.framing import ActionsPayload, StepPayload
from seedrl.wire.payload import pack_actions
from seedrl.wire.seedrl_pb2 import Environment
from seedrl.wire.version import MINOR_OF_FAILURE
from tests.patience import SECONDS


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


@pytest.mark.parametrize("learner", ["stream"], indirect=True)  # nobody is there to offer a link
def test_a_learner_that_is_starting_is_one_short_line_and_details_follow_if_it_does_not_come(
    learner: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = Stop()
    waits: list[float] = []

    def wait(client: ReconnectingClient, seconds: float) -> None:
        waits.append(seconds)
        client._attempts += 29  # with its own, half of those up to the reminder
        if len(waits) == 3:
            monkeypatch.setattr(Stop, "is_requested", True)

    monkeypatch.setattr(ReconnectingClient, "_wait", wait)
    client = ReconnectingClient(learner.address, Offer(1, 1, ()), stop, 2**20)
    assert client.run() is ExitCode.OK
    first, later = caplog.messages
    assert first == f"waiting for the learner at {learner.address}: nobody listens there yet"
    assert later.startswith(f"waiting for the learner at {learner.address} (UNAVAILABLE: failed")


@pytest.mark.parametrize("learner", ["stream"], indirect=True)
def test_who_is_sent_away_after_every_handshake_returns_ever_later_and_says_so_once(
    learner: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as a learner finds out whether it can use another environment."""
    bounds: list[float] = []

    def uniform(_: Any, low: float, high: float) -> float:
        bounds.append(high)
        return low

    def send_away(messages: Iterator[Any], context: Any) -> Iterator[Any]:
        next(messages)
        yield learner.assign([7])
        assert next(messages).HasField("ready")
        context.abort(grpc.StatusCode.UNAVAILABLE, "not now")

    monkeypatch.setattr(random.Random, "uniform", uniform)
    learner.serve(*[send_away] * 5, learner.play(learner.assign([8]), 3))
    assert learner.run(1).wait() is ExitCode.OK
    assert bounds == [0.1, 0.2, 0.4, 0.8, 1.0]
    assert len([line for line in caplog.messages if "not now" in line]) == 1


def test_the_pause_ends_when_the_socket_of_the_learner_appears(
    learner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_looked = threading.Event()
    exists, wait = os.path.exists, ReconnectingClient._wait

    def look(path: str) -> bool:
        is_there = exists(path)
        if not is_there and learner.address.endswith(path):
            has_looked.set()
        return is_there

    def first_for_ever(client: ReconnectingClient, seconds: float) -> None:
        # Only the first: a socket may be there before its learner answers.
        wait(client, seconds if has_looked.is_set() else 1e6)

    monkeypatch.setattr(os.path, "exists", look)
    monkeypatch.setattr(ReconnectingClient, "_wait", first_for_ever)
    run = learner.run(1, 1)
    # It pauses: were the socket there at its first look, it would keep the whole pause.
    assert has_looked.wait(SECONDS)
    learner.serve(learner.play(learner.assign([1]), 4))
    assert run.wait() is ExitCode.OK


class Failing(gymnasium.Env[np.ndarray, int]):
    """Raises at its third step, and counts how often one was closed."""

    num_closed = 0
    observation_space = gymnasium.spaces.Box(0, 1, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._left = 3
        return np.zeros(1, np.float32), {}

    def close(self) -> None:
        Failing.num_closed += 1

    def step(self, action: int) -> Any:
        self._left -= 1
        if not self._left:
            raise RuntimeError("the emulator\nhas crashed")
        return np.zeros(1, np.float32), 0.0, False, False, {}


@pytest.mark.parametrize("minor", [0, MINOR_OF_FAILURE])
def test_an_environment_that_keeps_raising_is_rebuilt_within_a_budget(
    learner: Any, minor: int, caplog: pytest.LogCaptureFixture
) -> None:
    gymnasium.register("Failing-v0", Failing)
    Failing.num_closed = 0
    environment = Environment(id="Failing-v0")

    reported: list[Any] = []

    def play(messages: Iterator[Any], context: Any) -> Iterator[Any]:
        # The env server ends the stream when its environment raises, and to a learner that
        # understands it says why.
        with contextlib.suppress(grpc.RpcError):
            assign = learner.assign([1], environment=environment)
            assign.assign.minor = minor
            yield from learner.play(assign, 3 if minor else 4, last=None)(messages, context)
            reported.append(next(messages).failure)

    try:
        learner.serve(*[play] * 20)
        failing = ReconnectingClient(learner.address, Offer(1, 1, ()), Stop(), 2**20)
        failing._random.uniform = lambda low, high: 0.0  # type: ignore[method-assign]
        assert failing.run() is ExitCode.FAILING_ENVIRONMENT
    finally:
        del gymnasium.registry["Failing-v0"]
    failures = [line for line in caplog.messages if "failure " in line]
    assert failures[3].startswith("ends: environment 0 is quarantined after failure 4 within an ho")
    reason = "environment 0 (slot 0), step 3 of group 0: RuntimeError: the emulator has crashed"
    assert failures[:3] == [f"{reason} (failure {number} within an hour)" for number in (1, 2, 3)]
    assert [step.sequence for step in learner.seen] == [0, 1, 2] * 4
    assert Failing.num_closed == 4
    assert [failure.reason for failure in reported] == [reason] * (4 if minor else 0)


class Moody(gymnasium.Env[np.ndarray, int]):
    """Of three, built in this order, those that are named in `bad` raise; shows its number."""

    bad: ClassVar[dict[int, str]] = {}
    num_built = 0
    observation_space = gymnasium.spaces.Box(0, 9, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        self._number = Moody.num_built % 3
        Moody.num_built += 1

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
    monkeypatch.setattr(Moody, "num_built", 0)
    monkeypatch.setattr(ReconnectingClient, "_wait", lambda client, seconds: None)
    return Environment(id="Moody-v0")


@pytest.mark.parametrize("learner", ["stream"], indirect=True)
@pytest.mark.parametrize(("where", "num_failures"), [("reset", 2), ("step", 4)])
def test_one_of_three_that_always_fails_is_left_out_and_the_others_go_on(
    learner: Any,
    moody: Environment,
    where: str,
    num_failures: int,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Moody, "bad", {1: where})
    hellos: list[Any] = []

    def play(messages: Iterator[Any], context: Any) -> Iterator[Any]:
        hello = next(messages)
        hellos.append(hello.hello)
        # One is stepped before the one that fails, and has worked then.
        seeds = [[5], [6, 7]] if hello.hello.num_envs == 3 else [[5, 7]]
        with contextlib.suppress(grpc.RpcError, StopIteration):
            assign = learner.assign(*seeds, environment=moody)
            yield from learner.play(assign, 9)(itertools.chain([hello], messages), context)

    learner.serve(*[play] * 9)
    client = ReconnectingClient(learner.address, Offer(3, 2, ()), Stop(), 2**20)
    assert client.run() is ExitCode.OK
    assert [hello.num_envs for hello in hellos] == [3] * num_failures + [2]
    assert [hello.num_quarantined for hello in hellos] == [0] * num_failures + [1]
    reason = f"environment 1 is quarantined after failure {num_failures} within an hour: "
    assert hellos[-1].quarantine.startswith(reason)
    assert hellos[-1].quarantine in caplog.text
    assert learner.seen[-1].timestep.observation.tolist() == [[0], [2]]


@pytest.mark.parametrize("learner", ["stream"], indirect=True)
@pytest.mark.parametrize("where", ["reset", "step"])
def test_three_that_all_fail_before_anything_has_worked_are_a_defect(
    learner: Any, moody: Environment, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Moody, "bad", dict.fromkeys(range(3), where))
    refusals: list[str] = []

    def play(messages: Iterator[Any], context: Any) -> Iterator[Any]:
        hello = next(messages).hello
        yield learner.assign(list(range(hello.num_envs)), environment=moody)
        with contextlib.suppress(grpc.RpcError):
            for message in messages:
                if isinstance(message, StepPayload):
                    yield ActionsPayload(pack_actions(0, 0, np.zeros(hello.num_envs, np.int32)))
                else:
                    refusals.append(message.refusal.reason)

    learner.serve(*[play] * 9)
    client = ReconnectingClient(learner.address, Offer(3, 1, ()), Stop(), 2**20)
    assert client.run() is ExitCode.USAGE
    said = [text for text in refusals if text.startswith("cannot start Moody-v0: environment ")]
    assert len(said) == (where == "reset")


@pytest.mark.parametrize("learner", ["stream"], indirect=True)
def test_films_are_not_numbered_again_for_a_second_stream(
    learner: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    built: list[Path] = []

    def build_filmed(recipe: Recipe, vectorization: str, folder: Path) -> VectorEnvironment:
        built.append(folder)
        return sync.build(recipe, 1)

    monkeypatch.setattr(building, "build_filmed", build_filmed)

    learner.serve(
        learner.play(learner.assign([1]), 4, last=None), learner.play(learner.assign([1]), 4)
    )
    films = ReconnectingClient(learner.address, Offer(1, 1, (), films=tmp_path), Stop(), 2**20)
    assert films.run() is ExitCode.FAILED_FILMS
    assert caplog.messages[-1] == "ends: the films were broken off: the learner ended the stream"
    assert built == [tmp_path]


class Unready(gymnasium.Env[np.ndarray, int]):
    """Can be built, but neither reset nor closed."""

    observation_space = gymnasium.spaces.Box(0, 1, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        raise RuntimeError("no display")

    def close(self) -> None:
        raise RuntimeError("never opened")


@pytest.mark.parametrize("learner", ["stream"], indirect=True)
def test_the_last_line_says_why_it_ends_whatever_environments_say_when_they_are_closed(
    learner: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "Unready-v0"
    monkeypatch.setitem(gymnasium.registry, name, EnvSpec(name, entry_point=Unready))

    def assign(messages: Iterator[Any], context: Any) -> Iterator[Any]:
        yield learner.assign([1], environment=Environment(id=name))
        list(messages)

    learner.serve(assign)
    assert learner.run(1, 1).wait() is ExitCode.USAGE
    *_, closing, reason = [line.message for line in caplog.records if line.name == "envs_server"]
    assert closing == "closing environments: RuntimeError: never opened"
    assert reason.startswith(
        f"ends: cannot start {name}: environment 0 (slot 0), reset of group 0: "
    )
    assert reason.endswith("RuntimeError: no display")


def test_a_learner_that_restarts_gets_its_env_server_back(learner: Any) -> None:
    attached = threading.Event()

    def hang(messages: Iterator[Any], context: Any) -> Iterator[Any]:
        next(messages)
        yield learner.assign([7])
        attached.set()
        list(messages)

    learner.serve(hang)
    run = learner.run(1, 1)
    assert attached.wait(SECONDS)
    learner.close()
    learner.serve(learner.play(learner.assign([8]), 3))
    assert run.wait() is ExitCode.OK
    assert [step.sequence for step in learner.seen] == [0, 1, 2]
    assert learner.seen[0].timestep.observation.tolist() == [[8, 0, 0, 0]]


def test_a_stop_request_ends_an_idle_stream(learner: Any) -> None:
    attached = threading.Event()

    def hang(messages: Iterator[Any], context: Any) -> Iterator[Any]:
        next(messages)
        yield learner.assign([7])
        next(messages)
        attached.set()
        with contextlib.suppress(grpc.RpcError):
            list(messages)

    learner.serve(hang)
    run = learner.run(1, 1)
    assert attached.wait(SECONDS)
    run.stop.request()
    assert run.wait() is ExitCode.OK


@pytest.mark.parametrize("learner", ["stream"], indirect=True)
def test_an_env_server_that_has_grown_does_not_come_back_to_a_learner_that_is_done(
    learner: Any,
) -> None:
    learner.serve(learner.play(learner.assign([1]), 1))
    start_again: Any = mock.Mock(side_effect=AssertionError)
    keeper = Keeper(Quarantine(1), start_again=start_again)
    keeper._grown_mib = 9
    client = ReconnectingClient(learner.address, Offer(1, 1, ()), Stop(), 2**20)
    assert client.run(keeper) is ExitCode.OK


class Closing(gymnasium.Env[np.ndarray, int]):
    """Notes in `close` what would be said of it if it hung there."""

    watch: Watch[Any]
    said: ClassVar[list[tuple[str, int | None]]] = []
    observation_space = gymnasium.spaces.Box(0, 1, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(1, np.float32), {}

    def close(self) -> None:
        (begun,) = [each for each in self.watch.current if each.thread == threading.get_ident()]
        error = begun.work.overdue(begun.frames(), begun.limit_seconds)
        Closing.said.append((str(error), error.position))


@pytest.mark.parametrize("learner", ["stream"], indirect=True)
@pytest.mark.parametrize(("deadline_seconds", "group_threads"), [(0.0, False), (90.0, True)])
def test_an_environment_that_hangs_when_it_is_closed_is_seen_and_named(
    learner: Any, monkeypatch: pytest.MonkeyPatch, deadline_seconds: float, group_threads: bool
) -> None:
    name = "Closing-v0"
    monkeypatch.setitem(gymnasium.registry, name, EnvSpec(name, entry_point=Closing))
    monkeypatch.setattr(Closing, "said", [])
    keeper = Keeper(Quarantine(3))
    monkeypatch.setattr(Closing, "watch", keeper.watch, raising=False)
    assign = learner.assign([1], [2, 3], environment=Environment(id=name))
    assign.assign.step_deadline_seconds = deadline_seconds
    learner.serve(learner.play(assign, 0))
    offer = Offer(3, 2, (), group_threads=group_threads)
    assert ReconnectingClient(learner.address, offer, Stop(), 2**20).run(keeper) is ExitCode.OK
    assert keeper.watch.current == []
    for number, (text, position) in enumerate(Closing.said):
        assert position == number
        hangs = f"close of group {min(number, 1)}: it hangs for {deadline_seconds or 60:g} s"
        assert text.startswith(f"environment {number} (slot {number}), {hangs}, in ")
    assert len(Closing.said) == 3
