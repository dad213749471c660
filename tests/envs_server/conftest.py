"""A scripted learner on a real unix socket, and an env server's client in a thread."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import numpy as np
import pytest

from envs_server.client import Client
from envs_server.options import Options
from envs_server.stop import Stop
from seedrl.exit_codes import ExitCode
from seedrl.types import TimeStep
from seedrl.wire.contract import MAJOR
from seedrl.wire.framing import (
    ActionsPayload,
    StepPayload,
    encode_from_learner,
    receive_from_env_server,
)
from seedrl.wire.learner_end import LearnerLink, connect_link, learner_handler, server_options
from seedrl.wire.learner_payload import StepReader, pack_actions
from seedrl.wire.link import Link
from seedrl.wire.payload import read_header
from seedrl.wire.seedrl_pb2 import Assign, Environment, Finish, FromLearner, Group
from seedrl.wire.spec import spec_of
from tests.patience import SECONDS

_COUNTING = Environment(id="seedrl_plugin.counting:make", arguments='{"lengths": [3, 2]}')
_FINISH = FromLearner(finish=Finish(reason="enough"))

Messages = Iterator[Any]
Script = Callable[[Messages, grpc.ServicerContext], Iterator[Any]]


class Answered(NamedTuple):
    """A step that a scripted learner received, and what it answered."""

    group: int
    sequence: int
    timestep: TimeStep
    actions: np.ndarray


class Run:
    """An env server's client in a thread, and how it ended."""

    def __init__(self, options: Options) -> None:
        self.stop = Stop()
        self._code: ExitCode | None = None
        self._client = Client(options, self.stop)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def wait(self) -> ExitCode | None:
        """How it ended, or None if it hangs."""
        self._thread.join(SECONDS)
        return self._code

    def _run(self) -> None:
        self._code = self._client.run()


class ScriptedLearner:
    """Learners at `address`, one after the other; the n-th stream of each runs its n-th script.

    `seen` collects the steps that `play` answered, in order of arrival.
    """

    def __init__(self, address: str, *, takes_link: bool) -> None:
        self.address = address
        self.takes_link = takes_link
        self.seen: list[Answered] = []
        self.errors: list[BaseException] = []
        self._server: grpc.Server | None = None

    def serve(self, *scripts: Script) -> None:
        """Starts a learner with these scripts; any further stream is refused as UNAVAILABLE."""
        remaining = iter(scripts)

        def handle(messages: Messages, context: grpc.ServicerContext) -> Iterator[Any]:
            script = next(remaining, None)
            if script is None:
                context.abort(grpc.StatusCode.UNAVAILABLE, "no script is left")
            if self.takes_link:
                script = _over_link(script)
            try:
                yield from script(_one_by_one(messages), context)
            except AssertionError as error:
                self.errors.append(error)
                yield _FINISH

        self._server = grpc.server(ThreadPoolExecutor(4), options=server_options(2**20))
        self._server.add_generic_rpc_handlers((learner_handler(handle, 2**26),))
        self._server.add_insecure_port(self.address)
        self._server.start()

    def close(self) -> None:
        """Kills the learner that is running, if any."""
        if self._server:
            self._server.stop(None).wait(SECONDS)
            self._server = None

    def run(self, num_envs: int, num_groups: int = 1) -> Run:
        """Starts an env server's client."""
        offered = {"num_envs": num_envs, "groups": num_groups}
        return Run(Options(learner=self.address, allow_env=("seedrl_plugin.*",), **offered))

    def assign(self, *groups: list[int], environment: Environment = _COUNTING) -> FromLearner:
        """Assign with a group for each list of seeds; slots are numbered through."""
        wire_groups, slot = [], 0
        for seeds in groups:
            wire_groups.append(Group(slots=range(slot, slot + len(seeds)), seeds=seeds))
            slot += len(seeds)
        return FromLearner(assign=Assign(environment=environment, groups=wire_groups))

    def play(
        self, assign: FromLearner, num_steps: int, last: FromLearner | None = _FINISH
    ) -> Script:
        """Shakes hands, answers `num_steps` steps at random as they come, then sends `last`."""

        def script(messages: Messages, context: grpc.ServicerContext) -> Iterator[Any]:
            assert next(messages).hello.major == MAJOR
            yield assign
            spec = spec_of(next(messages).ready.spec)
            layouts = [StepReader(spec, len(group.seeds)) for group in assign.assign.groups]
            random = np.random.default_rng(0)
            for _ in range(num_steps):
                data = next(messages)
                header = read_header(data)
                timestep = layouts[header.group].unpack(data)
                actions = random.integers(
                    spec.action.num_actions, size=header.num_envs, dtype=np.int32
                )
                self.seen.append(Answered(header.group, header.sequence, timestep, actions))
                yield ActionsPayload(pack_actions(header.group, header.sequence, actions))
            if last:
                yield last

        return script

    def abort(self, code: grpc.StatusCode, details: str) -> Script:
        """Answers Hello with an error."""

        def script(messages: Messages, context: grpc.ServicerContext) -> Iterator[Any]:
            next(messages)
            context.abort(code, details)
            yield

        return script


def _one_by_one(messages: Messages) -> Messages:
    """The same messages, but each step by itself: those that are ready at once leave together."""
    for message in messages:
        if not isinstance(message, StepPayload):
            if message.HasField("ready"):
                spec, num_metrics = spec_of(message.ready.spec), len(message.ready.metrics)
            yield message
            continue
        left = message
        while left:
            size = StepReader(spec, read_header(left).num_envs, num_metrics).size(left)
            yield left[:size]
            left = left[size:]


def _over_link(script: Script) -> Script:
    """The same script, with all but the handshake and the end over the env server's link."""

    def linked(messages: Messages, context: grpc.ServicerContext) -> Iterator[Any]:
        hello = next(messages)
        link = connect_link(hello.hello.link, 2**20)
        assert isinstance(link, LearnerLink)
        with contextlib.closing(link):
            context.add_callback(link.end)
            sent: list[str] = []
            for answer in script(_incoming(hello, link, sent), context):
                if isinstance(answer, ActionsPayload):
                    link.send(encode_from_learner(answer))
                    continue
                sent.append(answer.WhichOneof("content"))
                if sent[-1] == "assign":
                    answer.assign.linked = True
                yield answer
                if sent[-1] == "finish":
                    link.end()

    return linked


def _incoming(hello: Any, link: Link, sent: list[str]) -> Messages:
    """Like a stream's messages: they end after Finish, and with an RpcError before it."""
    yield hello
    yield from map(receive_from_env_server, link.receive())
    if "finish" not in sent:
        raise grpc.RpcError


@pytest.fixture(params=["stream", "link"])
def learner(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ScriptedLearner]:
    """A scripted learner, not yet serving."""
    scripted = ScriptedLearner(f"unix:{tmp_path}/learner", takes_link=request.param == "link")
    yield scripted
    scripted.close()
    assert not scripted.errors, scripted.errors
