"""One stream to the learner: the handshake, then groups stepped, interleaved, until it ends."""

import functools
import logging
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from envs_server.building import Stepped, build_group, check_together
from envs_server.errors import BuildError, EnvironmentFailedError, one_line
from envs_server.faults.group_threads import GroupThreads
from envs_server.faults.quarantine import Quarantine
from envs_server.faults.watchdog import Watch
from envs_server.playback import PlayedGroup
from envs_server.recipe import budget, check_assign, metrics_of, plan_groups
from envs_server.sent_log import SentLog
from seedrl.programs.niceness import stand_back
from seedrl.spec_json import encode_spec
from seedrl.wire.action_layout import ActionLayout
from seedrl.wire.framing import ActionsPayload, FramedStep, ToEnvServer, ToLearner, WireError
from seedrl.wire.payload import split
from seedrl.wire.printable import printable
from seedrl.wire.recording import Recording
from seedrl.wire.seedrl_pb2 import Assign, Failure, FromEnvServer, Hello, Ready, Refusal
from seedrl.wire.version import MAJOR, MINOR, MINOR_OF_FAILURE

_log = logging.getLogger("envs_server")

_BUILDING_SECONDS = 600.0  # a learner waits no longer for Ready
_CLOSING_SECONDS = 60.0  # for a group, of a learner without a deadline for its steps
LAST_MESSAGE_SECONDS = 5.0  # for it to reach the learner, which ends the stream

Result = TypeVar("Result")


class Offer(NamedTuple):
    """What this env server offers.

    Attributes:
      num_envs, num_groups: how much.
      allowed: patterns of the factories that may be named.
      recording: what is played in the place of environments, if anything.
      films: where every episode is filmed, if it is.
      group_threads: whether each group of several has a thread of its own.
      niceness: of the process once it is served.
    """

    num_envs: int
    num_groups: int
    allowed: tuple[str, ...]
    recording: Recording | None = None
    films: Path | None = None
    group_threads: bool = False
    niceness: int = 0


class Finished(NamedTuple):
    """The learner said that training is over, and why."""

    reason: str


class Outbox(Protocol):
    """Takes what is to be sent to the learner."""

    def put(self, message: ToLearner, /) -> None:
        """Sends `message` after those before it."""


class Lease:
    """A stream's environments, owned from Assign until `close`. Used by one thread.

    That thread steps them too. With `Offer.group_threads` it hands the actions of each group over
    to the group's own thread, which sends the step as well.

    Attributes:
      is_serving, is_answered: whether the handshake is over; whether a step has been answered.
    """

    def __init__(
        self,
        offer: Offer,
        outbox: Outbox,
        sent_log: SentLog,
        *,
        quarantine: Quarantine | None = None,
        watch: Watch[Stepped | None] | None = None,
        note: Callable[[int, bool], None] | None = None,
        broken_off: str = "",
        end_within: Callable[[float], object] = lambda seconds: None,
    ) -> None:
        """Says nothing yet.

        Args:
          quarantine: which environments are not offered; notes too whether one has ever worked.
          watch: shows which group is stepped; None while environments are built.
          note: see `build_group`.
          broken_off: how an earlier lease ended that was being filmed, if there was one.
          end_within: ends the stream within that many seconds; any thread may call it.
        """
        self._quarantine = quarantine or Quarantine(offer.num_envs)
        self._offer, self._outbox = offer, outbox
        self._sent_log = sent_log
        self._watch = watch or Watch()
        self._step_deadline_seconds = 0.0
        self._groups: list[Stepped] = []
        self._action_layouts: list[ActionLayout] = []
        self._learner_minor = 0
        self._build_group = functools.partial(
            build_group, films=offer.films, broken_off=broken_off, note=note
        )
        self._end_within = end_within
        self._threads: GroupThreads | None = None
        self.is_serving = self.is_answered = False

    def serve(self, messages: Iterator[Any]) -> Finished | None:
        """Serves `messages`, what the learner sends, until they end.

        Returns Finished if the learner says so, None if the stream just ended. Raises WireError if
        the learner breaks the contract, BuildError (after a Refusal was put) if the environment
        cannot be built or, if none has ever worked, not be reset, EnvironmentFailedError if one
        fails, FilmError if films cannot be written or go on, UnusableLinkError if the actions do
        not fit into the link, and what `messages` raises.
        """
        self.open()
        try:
            for message in messages:
                if (finished := self.handle(message)) is not None:
                    return finished
        except Exception:
            self._raise_of_threads()  # for which the stream has ended
            raise
        self._raise_of_threads()
        return None

    def open(self) -> None:
        """Says Hello."""
        self._outbox.put(self._hello())

    def handle(self, message: ToEnvServer | WireError) -> Finished | None:
        """Does what one message of the learner asks for; raises like `serve`."""
        if isinstance(message, ActionsPayload):
            self.is_answered = True
            for group, data in split(message, self._action_layouts):
                if self._threads is None:
                    self._send(group, self._step(group, memoryview(data)))
                else:
                    step = functools.partial(self._step, group, memoryview(data))
                    self._threads.hand_over(group, step, functools.partial(self._send, group))
        elif isinstance(message, WireError):
            raise message
        elif message.WhichOneof("content") == "finish":
            return Finished(message.finish.reason)
        else:
            self._start(message.assign)
        return None

    def _step(self, group: int, actions: ActionsPayload) -> FramedStep | None:
        self._watch.begin(self._groups[group], self._step_deadline_seconds)
        try:
            step = self._groups[group].step(actions)
        finally:
            self._watch.end()
        self._quarantine.worked()
        # Only now: what arrived twice is refused by then, and answers a step once.
        self._sent_log.answered(group)
        return step

    def _call(self, group: int, work: Callable[[], Result]) -> Result:
        """What `work` of a group gives, done in its thread."""
        return work() if self._threads is None else self._threads.call(group, work)

    def _end_stream(self, error: BaseException) -> None:
        """Another thread waits for messages, and only that wakes it to raise `error`."""
        is_reported = isinstance(error, EnvironmentFailedError) and self.report_failure(error)
        self._end_within(LAST_MESSAGE_SECONDS if is_reported else 0.0)

    def _raise_of_threads(self) -> None:
        if self._threads is not None and self._threads.error is not None:
            raise self._threads.error

    def _send(self, group: int, step: FramedStep | None) -> None:
        if step is None:
            return  # The end of a recording.
        # Counted first: a killed process has counted all that it sent, and at most one step more.
        self._sent_log.sent(group)
        self._outbox.put(step)

    def report_failure(self, error: EnvironmentFailedError) -> bool:
        """Reports what an environment has raised; whether the learner understands that.

        Only after Ready it does. It ends the stream thereupon.
        """
        if self._learner_minor < MINOR_OF_FAILURE or not self.is_serving:
            return False
        self._outbox.put(FromEnvServer(failure=Failure(reason=str(error))))
        return True

    def close(self) -> None:
        """Closes all environments, whatever they say to it."""
        self._learner_minor = 0  # it hears no more of what fails
        limit = self._step_deadline_seconds or _CLOSING_SECONDS
        for number, group in enumerate(self._groups):
            try:
                self._call(number, functools.partial(self._watched, group, limit, group.close))
            except Exception as error:
                _log.warning("closing environments: %s", one_line(error))
        self._groups = []
        if self._threads is not None:
            self._threads.close()
        self._threads = None

    def _hello(self) -> FromEnvServer:
        hello = Hello(
            major=MAJOR,
            minor=MINOR,
            num_envs=len(self._quarantine.live),
            num_groups=self._offer.num_groups,
            host=socket.gethostname(),
            pid=os.getpid(),
            sent=self._sent_log.report(),
            plays_recording=self._offer.recording is not None,
            num_quarantined=self._quarantine.num_out,
            quarantine=self._quarantine.reason,
        )
        return FromEnvServer(hello=hello)

    def _start(self, assign: Assign) -> None:
        if self._groups:
            raise WireError("expected actions or Finish after the handshake, got another Assign")
        self._learner_minor = assign.minor
        self._step_deadline_seconds = assign.step_deadline_seconds
        self._sent_log.open(assign.lease, [len(group.slots) for group in assign.groups])
        try:
            check_assign(assign, len(self._quarantine.live))
            self._watched(None, _BUILDING_SECONDS, functools.partial(self._build, assign))
            check_together(self._groups, assign)
            # Before Ready: what cannot even be reset is refused like what cannot be built.
            first = self._first_steps(assign)
        except BuildError as error:
            self._outbox.put(FromEnvServer(refusal=Refusal(reason=str(error))))
            raise
        self._action_layouts = [group.action_layout for group in self._groups]
        # The numbers that LAST rows carry: those that any environment was asked for.
        metrics = [] if self._offer.recording is not None else metrics_of(assign)
        ready = Ready(spec=encode_spec(self._groups[0].spec), metrics=metrics)
        self._outbox.put(FromEnvServer(ready=ready))
        for number, step in enumerate(first):
            self._send(number, step)
        self.is_serving = True
        stand_back(self._offer.niceness)
        _log.info(
            "connected: %d x %s in %d groups%s over %s",
            sum(len(group.slots) for group in assign.groups),
            printable(", ".join(environment.id for environment in assign.environments)),
            len(assign.groups),
            "" if self._threads is None else " with threads of their own",
            "a socket of the kernel" if assign.linked else "gRPC",
        )

    def _build(self, assign: Assign) -> None:
        recording = self._offer.recording
        if recording is not None:
            self._groups = [
                PlayedGroup(index, recording, group.slots, first_row=group.first_row)
                for index, group in enumerate(assign.groups)
            ]
            return
        plans = plan_groups(assign, self._quarantine.live, self._offer.allowed)
        self._quarantine.budget = budget(assign)
        if self._offer.group_threads and len(plans) > 1:
            self._threads = GroupThreads(len(plans), self._end_stream)
        for index, plan in enumerate(plans):
            built = functools.partial(self._build_group, index, plan)
            self._groups.append(self._call(index, built))

    def _first_steps(self, assign: Assign) -> list[FramedStep | None]:
        first = []
        try:
            for number, group in enumerate(self._groups):
                reset = functools.partial(self._watched, group, _BUILDING_SECONDS, group.first)
                first.append(self._call(number, reset))
            return first
        except EnvironmentFailedError as error:
            if not self._quarantine.is_defect(error.position):
                raise
            names = ", ".join(environment.id for environment in assign.environments)
            raise BuildError(f"cannot start {names}: {error}") from error

    def _watched(
        self, group: Stepped | None, limit_seconds: float, work: Callable[[], Result]
    ) -> Result:
        """What `work` gives; to be called in the thread that does it."""
        self._watch.begin(group, limit_seconds)
        try:
            return work()
        finally:
            self._watch.end()
