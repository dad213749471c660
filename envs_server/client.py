"""Keeps an env server attached to its learner: connects, serves a lease, returns."""

import contextlib
import functools
import logging
import os
import random
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar

import grpc

from envs_server.build import Recipe, budget, build, check_assign, metrics_of, read_recipes
from envs_server.errors import BuildError, EnvironmentFailedError, one_line
from envs_server.failures import Failures
from envs_server.groups import EnvGroup
from envs_server.hang import HangLimit
from envs_server.loop import Place
from envs_server.sent_log import SentLog
from envs_server.stop import Stop
from seedrl.exit_codes import ExitCode
from seedrl.programs.niceness import stand_back
from seedrl.programs.outcome import FAREWELL, FINISHED
from seedrl.wire.action_layout import ActionLayout
from seedrl.wire.credentials import tls_advice
from seedrl.wire.framing import ActionsPayload, FramedStep, ToEnvServer, ToLearner, WireError
from seedrl.wire.learner_connection import LearnerConnection
from seedrl.wire.local_link import UnusableLinkError, require_room
from seedrl.wire.payload import split
from seedrl.wire.printable import LONGEST_FROM_LEARNER, printable
from seedrl.wire.seedrl_pb2 import (
    Assign,
    Environment,
    Failure,
    FromEnvServer,
    Hello,
    Ready,
    Refusal,
)
from seedrl.wire.spec import spec_message
from seedrl.wire.version import MAJOR, MINOR

if TYPE_CHECKING:  # only few env servers play a recording
    from envs_server.playback import PlayedGroup
    from seedrl.wire.recording import Recording

_log = logging.getLogger("envs_server")

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

Result = TypeVar("Result")
Stepped: TypeAlias = "EnvGroup | PlayedGroup"


class Offer(NamedTuple):
    """What this env server offers.

    Attributes:
      num_envs, num_groups: how much.
      allowed: patterns of the factories that may be named.
      recording: played in the place of environments, if there is one.
      group_threads: whether each group of several has a thread of its own.
      niceness: of the process once it is served.
    """

    num_envs: int
    num_groups: int
    allowed: tuple[str, ...]
    recording: "Recording | None" = None
    group_threads: bool = False
    niceness: int = 0


class Finished(NamedTuple):
    """The learner has ended training, and why."""

    reason: str


class Outbox(Protocol):
    """Takes messages to the learner."""

    def put(self, message: ToLearner, /) -> None:
        """Sends `message` after those before it."""


class Lease:
    """A stream's environments, owned from Assign until `close`. Used by one thread.

    That thread steps them too. With `Offer.group_threads` each group is built, stepped and closed
    by a thread of its own, which sends its steps as well; only that thread touches the group.

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
        end_within: Callable[[float], object] = lambda seconds: None,
    ) -> None:
        """Sends nothing yet.

        Args:
          failures: which environments are not offered; those of the leases before count too.
          hang: ends the process if an environment hangs.
          end_within: ends the stream within that many seconds; any thread may call it.
        """
        self._failures = failures or Failures(offer.num_envs)
        self._offer, self._outbox, self._sent_log = offer, outbox, sent_log
        self._hang = hang or HangLimit()
        self._end_within = end_within
        self._step_deadline_seconds = 0.0
        self._groups: list[Stepped] = []
        self._action_layouts: list[ActionLayout] = []
        self._threads: list[ThreadPoolExecutor] = []
        self._thread_error: BaseException | None = None
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
        try:
            for message in messages:
                if (finished := self.handle(message)) is not None:
                    return finished
        except Exception:
            self._raise_of_threads()  # which has ended the stream
            raise
        self._raise_of_threads()
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
                if self._threads:
                    future = self._threads[group].submit(self._answer, group, memoryview(data))
                    future.add_done_callback(self._note_error)
                else:
                    self._answer(group, memoryview(data))
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
        for number, group in enumerate(self._groups):
            try:
                self._call(number, _CLOSING_SECONDS, group.close)
            except BaseException as error:
                _log.warning("closing environments: %s", one_line(error))
        self._groups = []
        for thread in self._threads:
            thread.shutdown()

    def _answer(self, group: int, actions: ActionsPayload) -> None:
        """Steps a group and sends the result; in the group's thread if it has one."""
        self._hang.begin(self._step_deadline_seconds)
        try:
            step = self._groups[group].step(actions)
        finally:
            self._hang.end()
        # Only now: actions that arrived twice are refused by then, and answer a step once.
        self._sent_log.answered(group)
        self._send(group, step)

    def _send(self, group: int, step: FramedStep | None) -> None:
        if step is None:
            return  # The end of a recording.
        # Counted first: a killed process has counted all that it sent, and at most one step more.
        self._sent_log.sent(group)
        self._outbox.put(step)

    def _note_error(self, future: Future[None]) -> None:
        """Wakes the thread that waits for messages, in the thread whose group failed."""
        error = future.exception()
        if error is not None and self._thread_error is None:
            self._thread_error = error
            is_reported = isinstance(error, EnvironmentFailedError) and self.report_failure(error)
            self._end_within(_LAST_MESSAGE_SECONDS if is_reported else 0.0)

    def _raise_of_threads(self) -> None:
        if self._thread_error is not None:
            raise self._thread_error

    def _call(self, group: int, seconds: float, work: Callable[[], Result]) -> Result:
        """The result of `work` within so many seconds, in the group's thread."""

        def limited() -> Result:
            with self._hang.limit(seconds):
                return work()

        return self._threads[group].submit(limited).result() if self._threads else limited()

    def _start(self, assign: Assign) -> None:
        if self._groups:
            raise WireError("expected actions or Finish after the handshake, got another Assign")
        self._step_deadline_seconds = assign.step_deadline_seconds
        self._sent_log.open(assign.lease, [len(group.slots) for group in assign.groups])
        try:
            check_assign(assign, len(self._failures.live))
            self._build(assign)
            _check_together(self._groups, assign)
            # Before Ready: an environment that cannot even be reset is refused like one that
            # cannot be built.
            first = [
                self._call(number, _BUILDING_SECONDS, group.first)
                for number, group in enumerate(self._groups)
            ]
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
        stand_back(self._offer.niceness)
        _log.info(
            "connected: %d x %s in %d groups%s over %s",
            sum(len(group.slots) for group in assign.groups),
            printable(", ".join(environment.id for environment in assign.environments)),
            len(assign.groups),
            " with threads of their own" if self._threads else "",
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
        metrics = metrics_of(assign)
        self._failures.budget = budget(assign)
        if self._offer.group_threads and len(assign.groups) > 1:
            self._threads = [ThreadPoolExecutor(1) for _ in assign.groups]
        positions = iter(self._failures.live)
        for index, group in enumerate(assign.groups):
            asked = assign.environments[group.environment]
            work = functools.partial(
                self._build_group,
                index,
                recipes[group.environment],
                asked,
                [Place(next(positions), slot) for slot in group.slots],
                [int(seed) for seed in group.seeds],
                # A number that this environment was not asked for is NaN: "" is no name of one.
                [name if name in asked.metrics else "" for name in metrics],
            )
            self._groups.append(self._call(index, _BUILDING_SECONDS, work))

    def _build_group(
        self,
        index: int,
        recipe: Recipe,
        asked: Environment,
        places: list[Place],
        seeds: list[int],
        metrics: list[str],
    ) -> EnvGroup:
        environment = build(
            recipe,
            asked.vectorization,
            len(places),
            max_abs_reward=asked.max_abs_reward,
            places=places,
            failures=self._failures,
        )
        return EnvGroup(index, environment, seeds, metrics, places=places, failures=self._failures)


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
    """There is no point in serving any longer; and why, in a line that is logged."""

    code: ExitCode
    reason: str

    def log(self) -> None:
        """Logs why."""
        _log.log(logging.ERROR if self.code else logging.INFO, "%s%s", FAREWELL, self.reason)


class _Return(NamedTuple):
    """The stream is over, but there should be another; and the longest pause before it.

    `advice` is for the user, if there is any.
    """

    reason: str
    longest_pause_seconds: float = _LONGEST_PAUSE_SECONDS
    advice: str = ""


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
        max_message_bytes: int,
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
            max_message_bytes=max_message_bytes,
            token=token,
            credentials=credentials,
        )
        # A process that replaces one which was served knows that the configuration is right.
        self._failures = Failures(offer.num_envs, has_worked=self._sent_log.has_served)
        self._has_served = False
        self._attempts = 0
        self._last_reason = ""  # for which it came back, of those that were logged
        self._random = random.Random()

    def run(self) -> ExitCode:
        """Serves until training is over, a stop is asked for, or there is no point in serving."""
        while not self._stop.is_requested:
            with contextlib.ExitStack() as stack:
                connection = self._connect(local_link=self._local_link)
                lease = Lease(
                    self._offer,
                    connection,
                    self._sent_log,
                    failures=self._failures,
                    hang=self._hang,
                    end_within=connection.end_within,
                )
                # Environments may take their time: the learner learns of the end before.
                stack.callback(lease.close)
                stack.enter_context(connection)
                outcome = self._serve(lease, connection)
                self._has_served |= lease.is_answered
                if isinstance(outcome, _End) and not outcome.code:
                    # Before environments are closed: one that ends the process changes nothing.
                    self._sent_log.note_finished()
                    outcome.log()
            if isinstance(outcome, _End):
                # Only now: environments may log more when they are closed, and the last line of a
                # log is taken for the reason.
                if outcome.code:
                    outcome.log()
                return outcome.code
            self._pause(outcome, lease)
        _log.info("stopped")
        return ExitCode.OK

    def _serve(self, lease: Lease, connection: LearnerConnection) -> _End | _Return:
        """One stream, and the consequence of its end."""
        try:
            finished = self._stream(lease, connection)
        except grpc.RpcError as error:
            return self._after_status(error.code(), _said(error.details() or ""), lease)
        except (BuildError, WireError) as error:
            return _End(ExitCode.USAGE, str(error))
        except EnvironmentFailedError as error:
            if not self._failures.has_worked:
                advice = "`seedrl check-env` says more of the environment"
                return _End(ExitCode.USAGE, f"{error}; {advice}")
            if not self._failures.live:
                return _End(ExitCode.TEMPORARY, str(error))
            return _Return("an environment failed")
        except UnusableLinkError as error:
            self._local_link = False
            return _Return(f"{error}; from now on over gRPC")
        if finished is None:
            return _Return("the learner ended the stream")
        return _End(ExitCode.OK, FINISHED + _said(finished.reason))

    def _stream(self, lease: Lease, connection: LearnerConnection) -> Finished | None:
        self._stop.on_request(connection.cancel)
        try:
            return lease.serve(connection.messages())
        except BuildError:
            connection.await_end(_LAST_MESSAGE_SECONDS)  # a Refusal must reach the learner
            raise
        except EnvironmentFailedError as error:
            if lease.report_failure(error):
                connection.await_end(_LAST_MESSAGE_SECONDS)
            raise
        finally:
            self._stop.on_request(None)

    def _after_status(self, code: grpc.StatusCode, details: str, lease: Lease) -> _End | _Return:
        if code in _FATAL_CODES:
            # Once a step was answered the two sides understand each other: an environment may have
            # written to our sockets, and another process in place of this one may go on.
            has_served = self._has_served or lease.is_answered
            is_breach = code is grpc.StatusCode.INVALID_ARGUMENT and has_served
            end = ExitCode.TEMPORARY if is_breach else ExitCode.USAGE
            return _End(end, f"the learner at {self._address} refused: {details}")
        is_full = code == grpc.StatusCode.RESOURCE_EXHAUSTED
        longest_pause = _LONGEST_PAUSE_WHEN_FULL_SECONDS if is_full else _LONGEST_PAUSE_SECONDS
        advice = tls_advice(details)
        return _Return(f"{code.name}: {details}{advice and '; ' + advice}", longest_pause, advice)

    def _pause(self, outcome: _Return, lease: Lease) -> None:
        if self._stop.is_requested:
            return
        # A learner may refuse every handshake until it has decided which environment it uses. Only
        # an answered step shows that it wants this one: until then the pauses grow.
        if lease.is_answered:
            self._attempts = 0
        is_news = lease.is_serving and outcome.reason != self._last_reason
        if is_news or lease.is_answered or self._attempts % _REMINDER_PAUSES == 0:
            _log.warning("%s", self._state(outcome, lease.is_serving))
            self._last_reason = outcome.reason
        bound = _FIRST_PAUSE_SECONDS * 2 ** min(self._attempts, 10)
        self._attempts += 1
        self._wait(self._random.uniform(0, min(outcome.longest_pause_seconds, bound)))

    def _state(self, outcome: _Return, was_serving: bool) -> str:
        reason = outcome.reason
        # Most learners are only starting; the reason is for those that do not come.
        if self._attempts == 0 and not was_serving and _NOBODY in reason and not outcome.advice:
            return f"waiting for the learner at {self._address}: nobody listens there yet"
        state = "disconnected from" if was_serving else "waiting for"
        return f"{state} the learner at {self._address} ({reason}); coming back"

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


def _said(text: str) -> str:
    return printable(text, LONGEST_FROM_LEARNER)
