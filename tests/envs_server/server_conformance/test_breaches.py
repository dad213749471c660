"""An env server that believes whatever a learner says is told each breach that it lets pass."""

import dataclasses
import struct
import threading

import grpc
import numpy as np
import pytest

from envs_server.connection import Offer
from envs_server.reconnecting_client import ReconnectingClient
from envs_server.server_conformance import breaches, cartpole
from envs_server.server_conformance.check import Dialogue, check
from envs_server.server_conformance.session import CARTPOLE
from envs_server.stop import Stop
from seedrl.wire.seedrl_pb2 import Assign, Environment
from tests.envs_server.server_conformance.broken_rules import PLAN
from tests.envs_server.server_conformance.example_server import (
    LAST,
    ExampleServer,
    OwnDefectError,
)
from tests.patience import SECONDS

pytestmark = pytest.mark.usefixtures("quick")


class Credulous(ExampleServer):
    """Believes whatever a learner says."""

    def read(self, data: bytes) -> tuple[int, np.ndarray, int]:
        if not self.sent:
            raise OwnDefectError("nothing is built")
        group, size, _ = struct.unpack_from("<IIQ", data)
        group = min(group, len(self.sent) - 1)
        end = 16 + -(-size * 4 // 8) * 8
        return group, np.resize(np.frombuffer(data[16:], "<i4"), self.sent[group][0]), end

    def is_followed(self, assign: Assign) -> bool:
        return True


class NoSequence(Credulous):
    def read(self, data: bytes) -> tuple[int, np.ndarray, int]:
        group, size, _ = struct.unpack_from("<IIQ", data)
        if group >= len(self.sent):
            raise OwnDefectError("no such group")
        header = struct.pack("<IIQ", group, size, self.sent[group][1] - 1)
        return ExampleServer.read(self, header + data[16:])


class AnyAction(ExampleServer):
    actions = frozenset(range(-1, 3))


class AnyLastAction(ExampleServer):
    """Looks only at the actions that it steps by."""

    def read(self, data: bytes) -> tuple[int, np.ndarray, int]:
        (group,), seen = struct.unpack_from("<I", data), bytearray(data)
        for row, env in enumerate(self.envs[group] if group < len(self.sent) else ()):
            if env.step_type == LAST:
                seen[16 + 4 * row : 20 + 4 * row] = bytes(4)
        return super().read(bytes(seen))


class CheerfulBreach(ExampleServer):
    """Ends after a learner's breach as if all were well."""

    def stream(self, channel: grpc.Channel) -> int | None:
        try:
            return super().stream(channel)
        except OwnDefectError:
            return 0


def breach_texts(server: ExampleServer, *chosen: Dialogue) -> list[str]:
    findings = check(server, PLAN, chosen).findings
    return [finding.text for finding in [*findings.errors, *findings.notes]]


def test_who_believes_whatever_a_learner_says_is_told_each_breach() -> None:
    found = breach_texts(Credulous(), breaches.breaches)
    assert [text.partition(": expected that the env server cancels its")[0] for text in found] == [
        "after an answer to the step before the one in flight",
        "after an answer to a step that was not sent yet",
        "after an answer and, in the same message, the same again",
        "after actions of group 3",
        "after actions with E 3 for a group of 2",
        "after actions that are 8 bytes too short",
        "after action -1 in row 0",
        "after action 2 in row 0",
        "after padding of actions that is not zero",
        "after action -1 for a LAST row",
    ]


@pytest.mark.parametrize(
    ("server", "texts"),
    [
        (
            AnyAction,
            [
                "after action -1 in row 0: expected that",
                "after action 2 in row 0: ",
                "after action -1 for a LAST row: ",
            ],
        ),
        (AnyLastAction, ["after action -1 for a LAST row: expected that the env server cancels"]),
        (CheerfulBreach, ["after actions before Assign: expected an exit code other than 0, got"]),
        (
            NoSequence,
            [
                "after an answer to the step before the one in flight: expected that the env "
                "server cancels its stream, got step",
                "after an answer to a step that was not sent yet: ",
                "after an answer and, in the same message, the same again: ",
            ],
        ),
    ],
)
def test_a_breach_that_goes_unnoticed_is_named(
    server: type[ExampleServer], texts: list[str]
) -> None:
    found = breach_texts(server(), breaches.breaches)
    assert [text[: len(start)] for text, start in zip(found, texts, strict=True)] == texts


def test_an_assign_that_contradicts_itself_must_be_refused() -> None:
    found = breach_texts(Credulous(), breaches.contradictions)
    names = [
        "no group",
        "a group without slots",
        "more environments than offered",
        "fewer seeds than slots",
        "a seed of 2^31",
        "a slot that occurs twice",
        "an environment that it does not list",
        "max_message_bytes below 64 KiB",
    ]
    assert found == [f"expected a Refusal of an Assign with {name}, got Ready" for name in names]


class OurOwn:
    """seedrl's env server as a `Subject`, in a thread."""

    def start(self, address: str) -> None:
        self.stop_request, self.code = Stop(), None
        client = ReconnectingClient(address, Offer(4, 2, ()), self.stop_request, 2**20)
        self.thread = threading.Thread(target=self._run, args=(client,), daemon=True)
        self.thread.start()

    def _run(self, client: ReconnectingClient) -> None:
        self.code = client.run()

    def exit_code(self) -> int | None:
        return self.code

    def last_words(self) -> str:
        return ""

    def stop(self) -> None:
        self.stop_request.request()
        self.thread.join(SECONDS)


def test_our_own_env_server_notices_each_breach_and_argument() -> None:
    environment = Environment(id=CARTPOLE, vectorization="auto")
    plan = dataclasses.replace(PLAN, environment=environment)
    said: list[str] = []
    chosen = [breaches.contradictions, breaches.breaches, cartpole.limited, cartpole.sutton_barto]
    report = check(OurOwn(), plan, chosen, say=said.append)
    findings = report.findings
    assert report.skipped == []
    assert said[::3] == ["dialogue 1 of 4: contradictions", "dialogue 4 of 4: sutton barto"]
    assert [each.line() for each in [*findings.errors, *findings.notes]] == []
