"""Keeps an env server attached to its learner: connects, serves a lease, returns."""

import contextlib
import functools
import logging
import os
import random
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc

from envs_server.build import build, check_assign, read_recipe
from envs_server.failures import BuildError, EnvironmentFailedError, Failures, Progress, one_line
from envs_server.groups import EnvGroup
from envs_server.options import Options
from envs_server.stop import FINISHED, HangLimit, Stop
from seedrl.exit_codes import ExitCode
from seedrl.timing import GRACE_SECONDS, MOST_READY_DEADLINE_SECONDS, WARNING_SECONDS
from seedrl.wire.channel import LearnerConnection
from seedrl.wire.contract import LONGEST_FROM_LEARNER, MAJOR, MINOR, printable
from seedrl.wire.framing import ActionsPayload, ToEnvServer, WireError
from seedrl.wire.link import UnusableLinkError, has_room
from seedrl.wire.payload import ActionLayout, split
from seedrl.wire.seedrl_pb2 import Assign, Failure, FromEnvServer, Hello, Ready, Refusal, Sent
from seedrl.wire.spec import spec_message

_log = logging.getLogger("envs_server")

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
# The start of gRPC's text if nobody listens; the addresses follow, with the reason of each.
_NOBODY = "failed to connect to all addresses"


# Why a stream ended, "" if that is logged, and the process's exit code; without one it reconnects.
End = tuple[str, ExitCode | None]


class Client:
    """Serves one learner for ever, over one stream at a time. Used by one thread.

    Environments are built again for every stream.
    """

    def __init__(
        self,
        options: Options,
        stop: Stop,
        *,
        token: str = "",
        credentials: grpc.ChannelCredentials | None = None,
        hang: HangLimit | None = None,
        notes: Path | None = None,
    ) -> None:
        """`token` and `credentials` are `LearnerConnection`'s; `hang` ends a process that hangs.

        `notes` is a file for the supervisor and for the process that replaces this one: there is
        none until a step was answered, and it has `FINISHED` once training is over.
        """
        self._options, self._stop, self._hang, self._notes = options, stop, hang, notes
        self._local_link = options.local_link  # until it proves unusable
        self._connect = functools.partial(
            LearnerConnection,
            options.learner,
            token=token,
            credentials=credentials,
        )
        # A process that replaces one which was served knows that the configuration is right.
        progress = Progress.ENDED if notes is not None and notes.exists() else Progress.NONE
        self._failures = Failures(options.num_envs, progress=progress)
        self._last_key = 0  # of the newest lease
        self._attempts = 0
        self._next_reminder = 0.0  # when to log again that there is no learner

    def run(self) -> ExitCode:
        """Serves until training is over, a stop is asked for, or there is no point in serving."""
        while not self._stop.is_requested:
            connection = self._connect(local_link=self._local_link)
            lease = Lease(
                self._options,
                connection,
                failures=self._failures,
                hang=self._hang,
                last_key=self._last_key,
                on_served=lambda: self._note("served"),
            )
            with contextlib.ExitStack() as stack:
                # Environments may take their time: the learner learns of the end before.
                stack.callback(lease.close)
                stack.enter_context(connection)
                reason, code = self._serve(lease, connection)
                self._last_key = lease.key
                if code is ExitCode.OK:
                    # Before environments are closed: one that ends the process changes nothing.
                    self._note(FINISHED)
                    _log.info("ends: %s", reason)
            if code is not None:
                # Only now: environments may log more when they are closed, and the last line of a
                # log is taken for the reason.
                if code:
                    _log.error("ends: %s", reason)
                return code
            self._pause(reason, lease)
        _log.info("stopped")
        return ExitCode.OK

    def _note(self, text: str) -> None:
        if self._notes is not None:
            try:
                self._notes.write_text(text)
            except OSError as error:  # a full disk does not end the play
                _log.warning("cannot note that it is %s: %s", text, error)

    def _serve(self, lease: "Lease", connection: LearnerConnection) -> End:
        # One stream, and the consequence of its end.
        # The thread of `Stop` cancels the stream, while this one steps or waits for a message: then
        # `messages` ends with an error, or, if environments are being stepped, after that step.
        self._stop.on_request(connection.cancel)
        try:
            finished = lease.serve(connection.messages())
        except grpc.RpcError as error:
            details = printable(error.details() or "", LONGEST_FROM_LEARNER)
            return self._after_status(error.code(), details)
        except WireError as error:
            # Nothing is sent that the learner should hear: its stream is cancelled by the caller.
            return str(error), ExitCode.USAGE
        except BuildError as error:
            connection.await_end(GRACE_SECONDS)  # the Refusal must reach the learner
            return str(error), ExitCode.USAGE
        except EnvironmentFailedError as error:
            # So must the Failure; before Ready there is none. Training may have ended meanwhile.
            finished = connection.await_end(GRACE_SECONDS) if lease.is_serving else None
            if finished is not None:
                return _finished(finished)
            # Wrong usage, if nothing has ever worked, or all have failed and none ended an episode.
            # Before Ready the others may still work.
            failures = self._failures
            has_never_worked = lease.is_serving and failures.progress < Progress.STEPPED
            if has_never_worked or not (failures.live or failures.progress == Progress.ENDED):
                return f"{error}. hint: run `seedrl check-env`", ExitCode.USAGE
            if not failures.live:
                return str(error), ExitCode.TEMPORARY
            num_left, num_envs = len(failures.live), self._options.num_envs
            _log.error("%s; reconnecting with %d of %d environments", error, num_left, num_envs)
            return "", None
        except UnusableLinkError as error:
            self._local_link = False
            return f"{error}; from now on over gRPC", None
        return ("the learner ended the stream", None) if finished is None else _finished(finished)

    def _after_status(self, code: grpc.StatusCode, details: str) -> End:
        if code in _FATAL_CODES:
            # Once a step was answered the two sides understand each other: an environment may have
            # written to our sockets, and another process in place of this one may go on.
            has_worked = self._failures.progress >= Progress.STEPPED
            is_breach = has_worked and code is grpc.StatusCode.INVALID_ARGUMENT
            end = ExitCode.TEMPORARY if is_breach else ExitCode.USAGE
            return f"the learner at {self._options.learner} refused: {details}", end
        from seedrl.wire.credentials import tls_advice

        # First: gRPC's text of a mistake in TLS also begins as if nobody listened.
        advice = tls_advice(details)
        if _NOBODY in details and not advice and self._attempts == 0:
            # Most learners are only starting; the reason is for those that do not come.
            return "nothing listens there yet", None
        return f"{code.name}: {details}{advice}", None

    def _pause(self, reason: str, lease: "Lease") -> None:
        if self._stop.is_requested:
            return
        # A learner may refuse every handshake until it has decided which environment it uses. Only
        # an answered step shows that it wants this one: until then the pauses grow.
        if lease.is_answered:
            self._attempts, self._next_reminder = 0, 0.0
        now = time.monotonic()
        if reason and now >= self._next_reminder:
            self._next_reminder = now + WARNING_SECONDS
            state = "disconnected from" if lease.is_serving else "waiting for"
            _log.warning("%s the learner at %s: %s", state, self._options.learner, reason)
        # At random, so that a fleet does not return all at once.
        bound = min(1.0, 0.1 * 2 ** min(self._attempts, 10))
        self._attempts += 1
        self._stop.wait(random.uniform(0, bound))


def _finished(reason: str) -> End:
    return "finished: " + printable(reason, LONGEST_FROM_LEARNER), ExitCode.OK


class Lease:
    """A stream's environments, owned from Assign until `close`. One thread steps them all.

    Attributes:
      is_serving, is_answered: whether the handshake is over; whether a step has been answered.
      key: the learner's name of this lease; until Assign arrives, of the previous one.
    """

    def __init__(
        self,
        options: Options,
        outbox: Any,
        *,
        failures: Failures | None = None,
        hang: HangLimit | None = None,
        last_key: int = 0,
        on_served: Callable[[], None] = lambda: None,
    ) -> None:
        """Sends nothing yet.

        `outbox.put` sends or copies messages before it returns: they may share the environments'
        memory. `failures` are those of the leases before too. `hang` ends the process if an
        environment hangs. `last_key` is of the lease before, 0 if there was none. `on_served` is
        called when the first step is answered.
        """
        self._failures = failures or Failures(options.num_envs)
        self._options, self._outbox, self._on_served = options, outbox, on_served
        self.key = last_key
        self._limit = hang.limit if hang else contextlib.nullcontext
        self._step_deadline_seconds = 0.0
        self._groups: list[EnvGroup] = []
        self._closing: list[Callable[[], object]] = []  # also those that no group took
        self._action_layouts: list[ActionLayout] = []
        self.is_serving = self.is_answered = False

    def serve(self, messages: Iterator[Any]) -> str | None:
        """Serves `messages` of the learner until they end; why training is over, if it is.

        Raises what `messages` raises, WireError if the learner breaks the contract, BuildError
        (after a Refusal was put) if an environment cannot be built or, if none has ever worked, not
        be reset, EnvironmentFailedError (after a Failure was put) if the stream cannot go on
        without one that failed, UnusableLinkError if the actions do not fit into the link.
        """
        self.open()
        try:
            for message in messages:
                if (finished := self.handle(message)) is not None:
                    return finished
        except EnvironmentFailedError as error:
            if self.is_serving:  # before Ready a learner does not understand it
                self._outbox.put(FromEnvServer(failure=Failure(reason=str(error))))
            raise
        return None

    def open(self) -> None:
        """Sends Hello."""
        hello = Hello(
            major=MAJOR,
            minor=MINOR,
            num_envs=len(self._failures.live),
            num_groups=self._options.groups,
            host=socket.gethostname(),
            pid=os.getpid(),
            # A learner that has not noticed the end of that lease would hold its slots.
            sent=[Sent(lease=self.key)] if self.key else [],
            num_quarantined=self._options.num_envs - len(self._failures.live),
            quarantine=self._failures.reason,
        )
        self._outbox.put(FromEnvServer(hello=hello))

    def handle(self, message: ToEnvServer | WireError) -> str | None:
        """Does what one message of the learner asks for; returns and raises like `serve`."""
        if isinstance(message, ActionsPayload):
            self._step(message)
        elif isinstance(message, WireError):
            raise message
        elif message.WhichOneof("content") == "finish":
            return message.finish.reason
        else:
            self._start(message.assign)
        return None

    def _step(self, message: ActionsPayload) -> None:
        if not self.is_answered:
            self.is_answered = True
            self._on_served()
        for group, data in split(message, self._action_layouts):
            with self._limit(self._step_deadline_seconds):
                step = self._groups[group].step(memoryview(data))
            self._outbox.put(step)

    def _start(self, assign: Assign) -> None:
        if self._groups:
            raise WireError("expected actions or Finish after the handshake, got another Assign")
        self._step_deadline_seconds = assign.step_deadline_seconds
        self.key = assign.lease  # an Assign confirms that Hello's has ended
        name = printable(assign.environment.id)
        try:
            with self._limit(MOST_READY_DEADLINE_SECONDS):
                check_assign(assign, len(self._failures.live))
                self._build(assign)
                # Before Ready: an environment that cannot even be reset is refused like one that
                # cannot be built, and only then it is known whether `info` has action masks.
                first = [group.first() for group in self._groups]
                _check_together(self._groups, assign)
        except (BuildError, EnvironmentFailedError) as error:
            if isinstance(error, EnvironmentFailedError):
                needed = Progress.RESET if self._failures.live else Progress.STEPPED
                if self._failures.progress >= needed:
                    raise
                error = BuildError(f"cannot start {name}: {error}")
            self._outbox.put(FromEnvServer(refusal=Refusal(reason=str(error))))
            raise error
        self._action_layouts = [group.action_layout for group in self._groups]
        ready = Ready(spec=spec_message(self._groups[0].spec), metrics=assign.environment.metrics)
        self._outbox.put(FromEnvServer(ready=ready))
        # After Ready, without which the learner cannot read them.
        for step in first:
            self._outbox.put(step)
        self.is_serving = True
        unlinked = printable(assign.unlinked_reason)
        _log.info(
            "connected: %d x %s in %d groups over %s",
            sum(len(group.slots) for group in assign.groups),
            name,
            len(assign.groups),
            # A learner that took no link names the reason: another host, mostly.
            "a Unix socket" if assign.linked else f"gRPC ({unlinked or 'as requested'})",
        )

    def _build(self, assign: Assign) -> None:
        asked, metrics = assign.environment, list(assign.environment.metrics)
        recipe = read_recipe(asked, self._options.allow_env)
        failures = self._failures
        # 0: as this side thinks fit.
        failures.most_per_hour = asked.failures_per_hour or failures.most_per_hour
        # Those that were left out keep their numbers, so that logs name the same one all the time.
        free = iter(failures.live)
        for index, group in enumerate(assign.groups):
            positions = [next(free) for _ in group.slots]
            failures.slots.update(zip(positions, group.slots, strict=True))
            try:
                environment = build(
                    recipe,
                    asked.vectorization,
                    len(positions),
                    max_abs_reward=asked.max_abs_reward,
                    positions=positions,
                    failures=failures,
                )
                self._closing.append(environment.close)
                self._groups.append(EnvGroup(index, environment, group.seeds, metrics))
            except BuildError as error:
                if failures.progress < Progress.STEPPED:
                    raise
                # It could be built before: a licence server, say, that is not there for a moment.
                text = failures.failed(None, f"constructor of group {index}", error)
                raise EnvironmentFailedError(text) from error

    def close(self) -> None:
        """Closes all environments, whatever they raise."""
        for close in self._closing:
            try:
                with self._limit(WARNING_SECONDS):
                    close()
            except BaseException as error:
                _log.warning("closing environments: %s", one_line(error))
        self._groups, self._closing = [], []


def _check_together(groups: list[EnvGroup], assign: Assign) -> None:
    # Raises BuildError for groups of several specs, UnusableLinkError if the link that the learner
    # took has no room for its actions.
    for group in groups:
        if (first := groups[0].spec) != group.spec:
            both = f"got {first!s:.200} and {group.spec!s:.200}"
            raise BuildError(f"expected environments of one spec, {both}")
    if assign.linked and not has_room([group.action_layout.num_bytes for group in groups]):
        raise UnusableLinkError("its actions are more than its Unix socket holds")
