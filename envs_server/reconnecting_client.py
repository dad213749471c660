"""Keeps an env server attached to its learner: connects, serves, returns."""

import contextlib
import logging
import os
import random
import time
from typing import NamedTuple

import grpc

from envs_server.connection import LAST_MESSAGE_SECONDS, Finished, Lease, Offer
from envs_server.errors import BuildError, EnvironmentFailedError, FilmError
from envs_server.faults.keeper import End, Keeper
from envs_server.faults.quarantine import Quarantine
from envs_server.sent_log import SentLog
from envs_server.stop import Stop
from seedrl.exit_codes import ExitCode
from seedrl.programs.farewell import FINISHED
from seedrl.wire.credentials import tls_advice
from seedrl.wire.framing import WireError
from seedrl.wire.learner_connection import LearnerConnection
from seedrl.wire.local_link import UnusableLinkError
from seedrl.wire.printable import LONGEST_FROM_LEARNER, printable

_log = logging.getLogger("envs_server")

# The learner will answer the same next time: it would be in vain to return.
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
# All slots are leased: there is no hurry.
_LONGEST_PAUSE_WHEN_FULL_SECONDS = 5.0
# How often to look for the socket of a learner that has not started yet.
_LOOK_SECONDS = 0.02
# What gRPC says first if it reaches nobody; then come the addresses, and what each said.
_NOBODY = "failed to connect to all addresses"
# While there is no learner, say so this often.
_REMINDER_PAUSES = 60


class _Return(NamedTuple):
    """The stream is over, but there should be another; and the longest pause before it.

    `advice` is what the user has to do, if something.
    """

    reason: str
    longest_pause_seconds: float = _LONGEST_PAUSE_SECONDS
    advice: str = ""


class ReconnectingClient:
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
    ) -> None:
        """Args are the command line's; see `envs_server.options`.

        Args:
          local_link: whether to offer a link to a learner of this host.
          token: what a learner may ask for; "" for none.
          credentials: of TLS; None for a connection without.
        """
        self._address = address
        self._offer = offer
        self._stop = stop
        self._max_message_bytes = max_message_bytes
        self._sent_log = sent_log or SentLog()
        self._local_link = local_link
        self._token = token
        self._credentials = credentials
        self._quarantine = Quarantine(offer.num_envs)
        self._broken_off = ""  # how the stream ended that was being filmed
        self._attempts = 0
        self._last_reason = ""  # for which it came back, of those that were logged
        self._random = random.Random()

    def run(self, keeper: Keeper | None = None) -> ExitCode:
        """Serves until training is over, a stop is asked for, or there is no point in serving.

        With a `keeper`, what hangs is ended, by beginning again in this process.
        """
        with contextlib.ExitStack() as stack:
            if keeper is not None:
                self._quarantine = keeper.quarantine
                stack.enter_context(contextlib.closing(keeper.watch_over(self._stop)))
            return self._run(keeper or Keeper(self._quarantine))

    def _run(self, keeper: Keeper) -> ExitCode:
        while not self._stop.is_requested:
            with contextlib.ExitStack() as stack:
                connection = LearnerConnection(
                    self._address,
                    max_message_bytes=self._max_message_bytes,
                    local_link=self._local_link,
                    token=self._token,
                    credentials=self._credentials,
                )
                lease = Lease(
                    self._offer,
                    connection,
                    self._sent_log,
                    quarantine=self._quarantine,
                    watch=keeper.watch,
                    note=keeper.note,
                    broken_off=self._broken_off,
                    end_within=connection.end_within,
                )
                # Environments may take their time: the learner hears of the end before.
                stack.callback(lease.close)
                stack.enter_context(connection)
                keeper.keeps(lease, connection)
                outcome = self._serve(lease, connection)
                if isinstance(outcome, End):
                    keeper.is_to_end(outcome)
            if isinstance(outcome, End):
                # Only now: environments may say more when they are closed, and who reads the log
                # takes its last line for the reason. That training is over has been said.
                if outcome.code:
                    outcome.say()
                return outcome.code
            keeper.begin_again_if_grown()
            # Known now, but of no consequence unless there is a learner to go on with.
            if lease.is_serving and self._offer.films is not None:
                self._broken_off = outcome.reason
            self._pause(outcome, lease)
        _log.info("stopped")
        return ExitCode.OK

    def _serve(self, lease: Lease, connection: LearnerConnection) -> End | _Return:
        """One stream, and what its end means."""
        try:
            finished = self._stream(lease, connection)
        except grpc.RpcError as error:
            return self._after_status(error.code(), _said(error.details() or ""))
        except (BuildError, WireError) as error:
            return End(ExitCode.USAGE, str(error))
        except FilmError as error:
            return End(ExitCode.FAILED_FILMS, str(error))
        except EnvironmentFailedError as error:
            if self._quarantine.is_defect(error.position):
                advice = "`seedrl check-env` says more of the environment"
                return End(ExitCode.USAGE, f"{error}; {advice}")
            return self._after_failure(error)
        except UnusableLinkError as error:
            self._local_link = False
            return _Return(f"{error}; from now on over gRPC")
        if finished is None:
            return _Return("the learner ended the stream")
        return End(ExitCode.OK, FINISHED + _said(finished.reason))

    def _stream(self, lease: Lease, connection: LearnerConnection) -> Finished | None:
        self._stop.on_request(connection.cancel)
        try:
            return lease.serve(connection.messages())
        except BuildError:
            connection.await_end(LAST_MESSAGE_SECONDS)  # a Refusal must reach the learner
            raise
        except EnvironmentFailedError as error:
            if lease.report_failure(error):
                connection.await_end(LAST_MESSAGE_SECONDS)
            raise
        finally:
            self._stop.on_request(None)

    def _after_status(self, code: grpc.StatusCode, details: str) -> End | _Return:
        if code in _FATAL_CODES:
            return End(ExitCode.USAGE, f"the learner at {self._address} refused: {details}")
        is_full = code == grpc.StatusCode.RESOURCE_EXHAUSTED
        longest_pause = _LONGEST_PAUSE_WHEN_FULL_SECONDS if is_full else _LONGEST_PAUSE_SECONDS
        advice = tls_advice(details)
        return _Return(f"{code.name}: {details}{advice and '; ' + advice}", longest_pause, advice)

    def _after_failure(self, error: EnvironmentFailedError) -> End | _Return:
        if self._offer.films is not None:
            return End(ExitCode.FAILED_FILMS, str(error))
        line = self._quarantine.failed(error.position, str(error))
        if not self._quarantine.live:
            return End(ExitCode.FAILING_ENVIRONMENT, line)
        _log.error("%s", line)
        return _Return("an environment failed")

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
        # Most learners are only starting; why one cannot be reached is for those that do not come.
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
