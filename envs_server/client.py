"""Keeps an env server attached to its learner: connects, serves a lease, returns."""

import contextlib
import functools
import logging
import os
import random
import socket
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import grpc

from envs_server.build import budget, build, check_assign, metrics_of, read_recipes
from envs_server.errors import BuildError, EnvironmentFailedError, one_line
from envs_server.failures import Failures
from envs_server.groups import EnvGroup
from envs_server.loop import Place
from envs_server.sent_log import SentLog
from envs_server.stop import HangLimit, Stop
from seedrl.exit_codes import ExitCode
from seedrl.wire.action_layout import ActionLayout
from seedrl.wire.credentials import tls_advice
from seedrl.wire.framing import ActionsPayload, FramedStep, ToEnvServer, ToLearner, WireError
from seedrl.wire.learner_connection import LearnerConnection
from seedrl.wire.local_link import UnusableLinkError, require_room
from seedrl.wire.payload import split
from seedrl.wire.printable import LONGEST_FROM_LEARNER, printable
from seedrl.wire.seedrl_pb2 import Assign, Failure, FromEnvServer, Hello, Ready, Refusal
from seedrl.wire.spec import spec_message
from seedrl.wire.version import MAJOR, MINOR

if TYPE_CHECKING:  # only few env servers play a recording
    from envs_server.playback import PlayedGroup
    from seedrl.wire.recording import Recording

_log = logging.getLogger("envs_server")

_MAX_MESSAGE_BYTES = 64 * 2**20
_BUILDING_SECONDS = 600.0  # no learner waits longer for Ready
_CLOSING_SECONDS = 60.0
_LAST_MESSAGE_SECONDS = 5.0  # for it to reach the learner, which ends the stream
# The learner would answer the same next time.
_FATAL_CODES = frozenset(
    {
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_WHEN_FULL_SECONDS = 5.0  # all slots are leased: there is no hurry
# How often to look for the socket of a learner that has not started yet.
_LOOK_SECONDS = 0.02
# The start of gRPC's text if nobody listens; the addresses follow, with the reason of each.
_NOBODY = "failed to connect to all addresses"
_REMINDER_PAUSES = 60  # between two lines that there is no learner yet

Stepped: TypeAlias = "EnvGroup | PlayedGroup"


class Offer(NamedTuple):
    """What this env server offers.

    Attributes:
      num_envs, num_groups: how much.
      allowed: patterns of the factories that may be named.
      recording: played in the place of environments, if there is one.
    """

    num_envs: int
    num_groups: int
    allowed: tuple[str, ...]
    recording: "Recording | None" = None


class Finished(NamedTuple):
    """The learner has ended training, and why."""

    reason: str


class Outbox(Protocol):
    """Takes messages to the learner."""

    def put(self, message: ToLearner, /) -> None:
        """Sends `message` after those before it."""


class Lease:
    """A stream's environments, owned from Assign until `close`. One thread steps them all.

    Attributes:
      is_serving, is_answered: whether the handshake is over; whether a step has been answered.
    """

    def __init__(
        self,
        offer: Offer,
        outbox: Outbox,
        sent_log: SentLog,
        *,
        failures: Failures | None = None,
        hang: HangLimit | None = None,
    ) -> None:
        """Sends nothing yet.

        Args:
          failures: which environments are not offered; those of the leases before count too.
          hang: ends the process if an environment hangs.
        """
        self._failures = failures or Failures(offer.num_envs)
        self._offer, self._outbox, self._sent_log = offer, outbox, sent_log
        self._hang = hang or HangLimit()
        self._step_deadline_seconds = 0.0
        self._groups: list[Stepped] = []
        self._action_layouts: list[ActionLayout] = []
        self.is_serving = self.is_answered = False

    def serve(self, messages: Iterator[Any]) -> Finished | None:
        """Serves `messages` of the learner until they end.

        Returns Finished if training is over, None if the stream just ended. Raises WireError if
        the learner breaks the contract, BuildError (after a Refusal was put) if the environment
        cannot be built or, if none has ever worked, not be reset, EnvironmentFailedError if the
        stream cannot go on without one that failed, UnusableLinkError if the actions do not fit
        into the link, and what `messages` raises.
        """
        self.open()
        for message in messages:
            if (finished := self.handle(message)) is not None:
                return finished
        return None

    def open(self) -> None:
        """Sends Hello."""
        hello = Hello(
            major=MAJOR,
            minor=MINOR,
            num_envs=len(live := self._failures.live),
            num_groups=self._offer.num_groups,
            host=socket.gethostname(),
            pid=os.getpid(),
            sent=self._sent_log.report(),
            plays_recording=self._offer.recording is not None,
            num_quarantined=self._offer.num_envs - len(live),
            quarantine=self._failures.reason,
        )
        self._outbox.put(FromEnvServer(hello=hello))

    def handle(self, message: ToEnvServer | WireError) -> Finished | None:
        """Does what one message of the learner asks for; raises like `serve`."""
        if isinstance(message, ActionsPayload):
            if not self.is_answered:
                self.is_answered = True
                self._sent_log.note_served()
            for group, data in split(message, self._action_layouts):
                with self._hang.limit(self._step_deadline_seconds):
                    step = self._groups[group].step(memoryview(data))
                # Only now: actions that arrived twice are refused by then, and answer a step once.
                self._sent_log.answered(group)
                self._send(group, step)
        elif isinstance(message, WireError):
            raise message
        elif message.WhichOneof("content") == "finish":
            return Finished(message.finish.reason)
        else:
            self._start(message.assign)
        return None

    def report_failure(self, error: EnvironmentFailedError) -> bool:
        """Reports it; False if the learner does not understand that, which it does after Ready.

        The learner ends the stream thereupon.
        """
        if not self.is_serving:
            return False
        self._outbox.put(FromEnvServer(failure=Failure(reason=str(error))))
        return True

    def close(self) -> None:
        """Closes all environments, whatever they raise."""
        for group in self._groups:
            try:
                with self._hang.limit(_CLOSING_SECONDS):
                    group.close()
            except BaseException as error:
                _log.warning("closing environments: %s", one_line(error))
        self._groups = []

    def _send(self, group: int, step: FramedStep | None) -> None:
        if step is None:
            return  # The end of a recording.
        # Counted first: a killed process has counted all that it sent, and at most one step more.
        self._sent_log.sent(group)
        self._outbox.put(step)

    def _start(self, assign: Assign) -> None:
        if self._groups:
            raise WireError("expected actions or Finish after the handshake, got another Assign")
        self._step_deadline_seconds = assign.step_deadline_seconds
        self._sent_log.open(assign.lease, [len(group.slots) for group in assign.groups])
        try:
            with self._hang.limit(_BUILDING_SECONDS):
                check_assign(assign, len(self._failures.live))
                self._build(assign)
                _check_together(self._groups, assign)
                # Before Ready: an environment that cannot even be reset is refused like one that
                # cannot be built.
                first = [group.first() for group in self._groups]
        except (BuildError, EnvironmentFailedError) as error:
            if isinstance(error, EnvironmentFailedError):
                if self._failures.has_worked:
                    raise
                names = ", ".join(environment.id for environment in assign.environments)
                error = BuildError(f"cannot start {names}: {error}")
            self._outbox.put(FromEnvServer(refusal=Refusal(reason=str(error))))
            raise error
        self._action_layouts = [group.action_layout for group in self._groups]
        metrics = [] if self._offer.recording is not None else metrics_of(assign)
        ready = Ready(spec=spec_message(self._groups[0].spec), metrics=metrics)
        self._outbox.put(FromEnvServer(ready=ready))
        for number, step in enumerate(first):
            self._send(number, step)
        self.is_serving = True
        _log.info(
            "connected: %d x %s in %d groups over %s",
            sum(len(group.slots) for group in assign.groups),
            printable(", ".join(environment.id for environment in assign.environments)),
            len(assign.groups),
            "a socket of the kernel" if assign.linked else "gRPC",
        )

    def _build(self, assign: Assign) -> None:
        if (recording := self._offer.recording) is not None:
            from envs_server.playback import PlayedGroup

            self._groups = [
                PlayedGroup(index, recording, group.slots, first_row=group.first_row)
                for index, group in enumerate(assign.groups)
            ]
            return
        recipes = read_recipes(assign.environments, self._offer.allowed)
        names = metrics_of(assign)
        self._failures.budget = budget(assign)
        positions = iter(self._failures.live)
        for index, group in enumerate(assign.groups):
            asked = assign.environments[group.environment]
            places = [Place(next(positions), slot) for slot in group.slots]
            environment = build(
                recipes[group.environment],
                asked.vectorization,
                len(places),
                max_abs_reward=asked.max_abs_reward,
                places=places,
                failures=self._failures,
            )
            # A number that this environment was not asked for is NaN: "" is no name of one.
            metrics = [name if name in asked.metrics else "" for name in names]
            self._groups.append(
                EnvGroup(
                    index,
                    environment,
                    [int(seed) for seed in group.seeds],
                    metrics,
                    places=places,
                    failures=self._failures,
                )
            )


def _check_together(groups: list[Stepped], assign: Assign) -> None:
    """Raises BuildError for groups of several specs, or with steps that the learner does not take.

    Raises UnusableLinkError if the link that the learner took has no room for its actions.
    """
    for group in groups:
        if difference := groups[0].spec.difference(group.spec):
            raise BuildError(f"expected environments of one spec: {'; '.join(difference)}")
    longest = max(group.longest_message_bytes for group in groups)
    if 0 < assign.max_message_bytes < longest:
        raise BuildError(
            f"expected steps of at most {assign.max_message_bytes} bytes, as the learner takes, "
            f"they would be of {longest}; offer fewer environments, or raise "
            "serving.max_message_bytes"
        )
    if assign.linked:
        require_room([group.action_layout.num_bytes for group in groups])


class _End(NamedTuple):
    """How a stream ended, in a line that is logged, and what follows.

    Attributes:
      reason: why.
      code: the process ends with it; None to connect once more.
      longest_pause_seconds: before that.
    """

    reason: str
    code: ExitCode | None = None
    longest_pause_seconds: float = _LONGEST_PAUSE_SECONDS


class Client:
    """Serves one learner for ever, over one stream at a time. Used by one thread.

    After a stream ended it waits a random time below a bound that doubles from 0.1 to 1 second (5
    if the learner has no slot free), so that a fleet does not return all at once. It waits no
    longer once the unix socket of a learner that is starting appears. Environments are built again
    for every stream.
    """

    def __init__(
        self,
        address: str,
        offer: Offer,
        stop: Stop,
        sent_log: SentLog | None = None,
        *,
        local_link: bool = True,
        token: str = "",
        credentials: grpc.ChannelCredentials | None = None,
        hang: HangLimit | None = None,
    ) -> None:
        """Args are the command line's; see `envs_server.options`.

        Args:
          local_link: whether to offer a link to a learner of this host.
          token: what a learner may ask for; "" for none.
          credentials: of TLS; None for a connection without.
          hang: ends the process if an environment hangs; None to wait for it.
        """
        self._address, self._offer, self._stop = address, offer, stop
        self._sent_log = sent_log or SentLog()
        self._local_link, self._hang = local_link, hang or HangLimit()
        self._connect = functools.partial(
            LearnerConnection,
            address,
            max_message_bytes=_MAX_MESSAGE_BYTES,
            token=token,
            credentials=credentials,
        )
        # A process that replaces one which was served knows that the configuration is right.
        self._failures = Failures(offer.num_envs, has_worked=self._sent_log.has_served)
        self._attempts = 0
        self._random = random.Random()

    def run(self) -> ExitCode:
        """Serves until training is over, a stop is asked for, or there is no point in serving."""
        while not self._stop.is_requested:
            connection = self._connect(local_link=self._local_link)
            lease = Lease(
                self._offer, connection, self._sent_log, failures=self._failures, hang=self._hang
            )
            with contextlib.ExitStack() as stack:
                # Environments may take their time: the learner learns of the end before.
                stack.callback(lease.close)
                stack.enter_context(connection)
                end = self._serve(lease, connection)
                if end.code is ExitCode.OK:
                    # Before environments are closed: one that ends the process changes nothing.
                    self._sent_log.note_finished()
                    _log.info("ends: %s", end.reason)
            if end.code is not None:
                # Only now: environments may log more when they are closed, and the last line of a
                # log is taken for the reason.
                if end.code:
                    _log.error("ends: %s", end.reason)
                return end.code
            self._pause(end, lease)
        _log.info("stopped")
        return ExitCode.OK

    def _serve(self, lease: Lease, connection: LearnerConnection) -> _End:
        """One stream, and the consequence of its end."""
        self._stop.on_request(connection.cancel)
        try:
            finished = lease.serve(connection.messages())
        except grpc.RpcError as error:
            return self._after_status(error.code(), _printed(error.details() or ""))
        except BuildError as error:
            connection.await_end(_LAST_MESSAGE_SECONDS)  # a Refusal must reach the learner
            return _End(str(error), ExitCode.USAGE)
        except WireError as error:
            return _End(str(error), ExitCode.USAGE)
        except EnvironmentFailedError as error:
            if lease.report_failure(error):
                connection.await_end(_LAST_MESSAGE_SECONDS)
            if not self._failures.has_worked:
                advice = "`seedrl check-env` says more of the environment"
                return _End(f"{error}; {advice}", ExitCode.USAGE)
            if not self._failures.live:
                return _End(str(error), ExitCode.TEMPORARY)
            return _End("an environment failed")
        except UnusableLinkError as error:
            self._local_link = False
            return _End(f"{error}; from now on over gRPC")
        finally:
            self._stop.on_request(None)
        if finished is None:
            return _End("the learner ended the stream")
        return _End("finished: " + _printed(finished.reason), ExitCode.OK)

    def _after_status(self, code: grpc.StatusCode, details: str) -> _End:
        if code in _FATAL_CODES:
            # Once a step was answered the two sides understand each other: an environment may have
            # written to our sockets, and another process in place of this one may go on.
            is_breach = code is grpc.StatusCode.INVALID_ARGUMENT and self._sent_log.has_served
            end = ExitCode.TEMPORARY if is_breach else ExitCode.USAGE
            return _End(f"the learner at {self._address} refused: {details}", end)
        if advice := tls_advice(details):
            return _End(f"{code.name}: {details}; {advice}")
        if _NOBODY in details and self._attempts == 0:
            # Most learners are only starting; the reason is for those that do not come.
            return _End("nobody listens there yet")
        is_full = code is grpc.StatusCode.RESOURCE_EXHAUSTED
        longest_pause = _LONGEST_PAUSE_WHEN_FULL_SECONDS if is_full else _LONGEST_PAUSE_SECONDS
        return _End(f"{code.name}: {details}", None, longest_pause)

    def _pause(self, end: _End, lease: Lease) -> None:
        if self._stop.is_requested:
            return
        # A learner may refuse every handshake until it has decided which environment it uses. Only
        # an answered step shows that it wants this one: until then the pauses grow.
        if lease.is_answered:
            self._attempts = 0
        if self._attempts % _REMINDER_PAUSES == 0:
            state = "disconnected from" if lease.is_serving else "waiting for"
            _log.warning("%s the learner at %s: %s", state, self._address, end.reason)
        bound = _FIRST_PAUSE_SECONDS * 2 ** min(self._attempts, 10)
        self._attempts += 1
        self._wait(self._random.uniform(0, min(end.longest_pause_seconds, bound)))

    def _wait(self, seconds: float) -> None:
        """Sleeps for that long, or until a unix socket that is not there yet appears."""
        path = self._address.removeprefix("unix:")
        if path == self._address or os.path.exists(path):
            self._stop.wait(seconds)
            return
        end = time.monotonic() + seconds
        while time.monotonic() < end and not os.path.exists(path):
            if self._stop.wait(_LOOK_SECONDS):
                return


def _printed(text: str) -> str:
    return printable(text, LONGEST_FROM_LEARNER)
