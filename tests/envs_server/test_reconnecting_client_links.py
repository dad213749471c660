"""When an env server gives up the link, and comes back without one."""

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from seedrl.exit_codes import ExitCode
from seedrl.wire import learner_connection, local_link


@pytest.mark.parametrize("learner", ["stream"], indirect=True)
def test_a_link_that_the_learner_does_not_come_to_is_not_offered_again(
    learner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learner_connection, "_LINK_SECONDS", 0.05)
    offered = []

    def claim(messages: Iterator[Any], context: Any) -> Iterator[Any]:
        offered.append(next(messages).hello.link)
        assign = learner.assign([7])
        assign.assign.linked = True
        yield assign
        with contextlib.suppress(grpc.RpcError):
            list(messages)

    def play(messages: Iterator[Any], context: Any) -> Iterator[Any]:
        hello = next(messages)
        offered.append(hello.hello.link)
        yield from learner.play(learner.assign([8]), 2)(itertools.chain([hello], messages), context)

    learner.serve(claim, play)
    assert learner.run(1, 1).wait() is ExitCode.OK
    assert offered[0].startswith("seedrl-") and offered[1:] == [""]
    assert [step.sequence for step in learner.seen] == [0, 1]


def test_actions_that_do_not_fit_into_the_link_take_grpc(
    learner: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    takes_link = learner.takes_link
    monkeypatch.setattr(local_link, "_KERNEL_BUFFER_BYTES", 2**12)
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
    (line,) = [line for line in caplog.messages if "coming back" in line] or [""]
    assert ("(its actions, of 4112 bytes for 1 group(s), are more than a soc" in line) == takes_link
    assert line.endswith("from now on over gRPC); coming back") == takes_link
