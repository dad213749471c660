"""One stream to the learner: the handshake, then groups stepped in turn until the stream ends."""

import logging
import os
import queue
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from envs_server.building import build
from envs_server.factories import one_line
from envs_server.group import EnvGroup
from envs_server.playback import PlayedGroup
from envs_server.recipe import read_recipe
from envs_server.sent_log import SentLog
from envs_server.vector import BuildError
from seedrl.wire.framing import ActionsPayload, FramedStep, ToEnvServer, ToLearner, WireError
from seedrl.wire.payload import read_header
from seedrl.wire.recording import Recording
from seedrl.wire.seedrl_pb2 import Assign, FromEnvServer, Group, Hello, Ready, Refusal
from seedrl.wire.version import MAJOR, MINOR

_log = logging.getLogger("envs_server")


class Offer(NamedTuple):
    """What this env server offers.

    Attributes:
      num_envs, num_groups: how much.
      allowed: patterns of the factories that may be named.
      recording: what is played in the place of environments, if anything.
    """

    num_envs: int
    num_groups: int
    allowed: tuple[str, ...]
    recording: Recording | None = None


class Finished(NamedTuple):
    """The learner said that training is over, and why."""

    reason: str


class Outbox:
    """Messages on their way out: gRPC reads them in a thread of its own, or a link takes them."""

    def __init__(self) -> None:
        self._messages: queue.SimpleQueue[ToLearner | None] = queue.SimpleQueue()
        self._send: Callable[[ToLearner], None] = self._messages.put

    def put(self, message: ToLearner) -> None:
        """Sends `message` after those before it."""
        self._send(message)

    def divert(self, send: Callable[[ToLearner], None]) -> None:
        """Gives what is put from now on to `send`."""
        self._send = send

    def close(self) -> None:
        """Ends the outgoing half of the stream after what was put."""
        self._messages.put(None)

    def __iter__(self) -> Iterator[ToLearner]:
        return iter(self._messages.get, None)


class Lease:
    """A stream's environments, owned from Assign until `close`. Used by one thread."""

    def __init__(
        self, offer: Offer, outbox: Outbox, sent_log: SentLog, *, link_name: str = ""
    ) -> None:
        """`link_name` is that of the listener for a link, if there is one."""
        self._offer = offer
        self._outbox = outbox
        self._sent_log = sent_log
        self._link_name = link_name
        self._groups: list[EnvGroup | PlayedGroup] = []
        self.is_serving = False

    def serve(self, messages: Iterator[Any]) -> Finished | None:
        """Serves `messages`, what the learner sends, until they end.

        Returns Finished if the learner says so, None if the stream just ended. Raises WireError if
        the learner breaks the contract, BuildError (after a Refusal was put) if the environment
        cannot be built, EnvironmentFailedError if one fails, and what `messages` raises.
        """
        self.open()
        for message in messages:
            finished = self.handle(message)
            if finished is not None:
                return finished
        return None

    def open(self) -> None:
        """Says Hello."""
        self._outbox.put(self._hello())

    def handle(self, message: ToEnvServer | WireError) -> Finished | None:
        """Does what one message of the learner asks for; raises like `serve`."""
        if isinstance(message, ActionsPayload):
            group, environments = self._group_of(message)
            step = environments.step(message)
            # Only now: what came twice is refused by then, and answers a step once.
            self._sent_log.answered(group)
            self._send(group, step)
        elif isinstance(message, WireError):
            raise message
        elif message.WhichOneof("content") == "finish":
            return Finished(message.finish.reason)
        else:
            self._start(message.assign)
        return None

    def _send(self, group: int, step: FramedStep | None) -> None:
        if step is None:
            return  # The end of a recording.
        # Counted first: what a killed process has sent was counted, and no more than this one step
        # may have been counted without being sent.
        self._sent_log.sent(group)
        self._outbox.put(step)

    def close(self) -> None:
        """Closes all environments, whatever they say to it."""
        for group in self._groups:
            try:
                group.close()
            except Exception as error:
                _log.warning("closing environments: %s", one_line(error))
        self._groups = []

    def _hello(self) -> FromEnvServer:
        return FromEnvServer(
            hello=Hello(
                major=MAJOR,
                minor=MINOR,
                num_envs=self._offer.num_envs,
                num_groups=self._offer.num_groups,
                host=socket.gethostname(),
                pid=os.getpid(),
                sent=self._sent_log.report(),
                plays_recording=self._offer.recording is not None,
                link=self._link_name,
            )
        )

    def _start(self, assign: Assign) -> None:
        if self._groups:
            raise WireError("expected actions or Finish after the handshake, got another Assign")
        _check_groups(assign.groups, self._offer.num_envs)
        self._sent_log.open(assign.lease, [len(group.slots) for group in assign.groups])
        try:
            self._build(assign)
        except BuildError as error:
            self._outbox.put(FromEnvServer(refusal=Refusal(reason=str(error))))
            raise
        self._outbox.put(FromEnvServer(ready=Ready(spec=self._groups[0].spec.to_json())))
        for number, group in enumerate(self._groups):
            self._send(number, group.first())
        self.is_serving = True
        _log.info(
            "connected: %d x %s in %d groups",
            sum(len(group.slots) for group in assign.groups),
            assign.environment.id,
            len(assign.groups),
        )

    def _build(self, assign: Assign) -> None:
        recording = self._offer.recording
        if recording is not None:
            self._groups = [
                PlayedGroup(index, recording, group.slots, first_row=group.first_row)
                for index, group in enumerate(assign.groups)
            ]
            return
        recipe = read_recipe(assign.environment, self._offer.allowed)
        for index, group in enumerate(assign.groups):
            seeds = [int(seed) for seed in group.seeds]
            environment = build(recipe, assign.environment.vectorization, len(seeds))
            try:
                self._groups.append(EnvGroup(index, environment, seeds))
            except BuildError:
                environment.close()
                raise

    def _group_of(self, payload: ActionsPayload) -> tuple[int, EnvGroup | PlayedGroup]:
        index = read_header(payload.data).group
        if index >= len(self._groups):
            raise WireError(
                f"expected actions for a group below {len(self._groups)}, got group {index}"
            )
        return index, self._groups[index]


def _check_groups(groups: Sequence[Group], num_envs: int) -> None:
    sizes = [len(group.slots) for group in groups]
    if not sizes or min(sizes) < 1 or sum(sizes) > num_envs:
        raise WireError(f"expected groups of at most {num_envs} slots in all, got {sizes}")
    if [len(group.seeds) for group in groups] != sizes:
        raise WireError("expected one seed for each slot of a group in Assign")
    if any(seed >= 2**31 for group in groups for seed in group.seeds):
        raise WireError("expected seeds below 2^31 in Assign")
