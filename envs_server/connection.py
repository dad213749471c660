"""One stream to the learner: the handshake, then groups stepped, interleaved, until it ends."""

import itertools
import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

from envs_server.building import build, build_filmed
from envs_server.errors import BuildError, EnvironmentFailedError, FilmError, one_line
from envs_server.faults.quarantine import Quarantine
from envs_server.faults.watchdog import Watch
from envs_server.group import EnvGroup, Place
from envs_server.playback import PlayedGroup
from envs_server.recipe import Recipe, budget, check_assign, read_recipes
from envs_server.sent_log import SentLog
from envs_server.vector import VectorEnvironment
from seedrl.spec_json import encode_spec
from seedrl.specs import EnvSpec
from seedrl.wire.action_layout import ActionLayout
from seedrl.wire.framing import ActionsPayload, FramedStep, ToEnvServer, ToLearner, WireError
from seedrl.wire.payload import split
from seedrl.wire.printable import printable
from seedrl.wire.recording import Recording
from seedrl.wire.seedrl_pb2 import Assign, Failure, FromEnvServer, Hello, Ready, Refusal
from seedrl.wire.version import MAJOR, MINOR, MINOR_OF_FAILURE

_log = logging.getLogger("envs_server")


_BUILDING_SECONDS = 600.0  # more than a learner waits for Ready

Stepped: TypeAlias = EnvGroup | PlayedGroup


class Offer(NamedTuple):
    """What this env server offers.

    Attributes:
      num_envs, num_groups: how much.
      allowed: patterns of the factories that may be named.
      recording: what is played in the place of environments, if anything.
      films: where every episode is filmed, if it is.
    """

    num_envs: int
    num_groups: int
    allowed: tuple[str, ...]
    recording: Recording | None = None
    films: Path | None = None


class Finished(NamedTuple):
    """The learner said that training is over, and why."""

    reason: str


class Outbox(Protocol):
    """Takes what is to be sent to the learner."""

    def put(self, message: ToLearner, /) -> None:
        """Sends `message` after those before it."""
        ...


class Lease:
    """A stream's environments, owned from Assign until `close`. Used by one thread.

    Attributes:
      is_serving: whether the handshake is over.
    """

    def __init__(
        self,
        offer: Offer,
        outbox: Outbox,
        sent_log: SentLog,
        *,
        quarantine: Quarantine | None = None,
        watch: Watch[Stepped | None] | None = None,
        broken_off: str = "",
    ) -> None:
        """Says nothing yet.

        Args:
          quarantine: which environments are not offered; notes too whether one has ever worked.
          watch: shows which group is stepped; None while environments are built.
          broken_off: how an earlier lease ended that was being filmed, if there was one.
        """
        self._quarantine = quarantine or Quarantine(offer.num_envs)
        self._offer = offer
        self._outbox = outbox
        self._sent_log = sent_log
        self._watch = watch or Watch()
        self._step_deadline_seconds = 0.0
        self._groups: list[Stepped] = []
        self._action_layouts: list[ActionLayout] = []
        self._learner_minor = 0
        self._broken_off = broken_off
        self.is_serving = False

    def serve(self, messages: Iterator[Any]) -> Finished | None:
        """Serves `messages`, what the learner sends, until they end.

        Returns Finished if the learner says so, None if the stream just ended. Raises WireError if
        the learner breaks the contract, BuildError (after a Refusal was put) if the environment
        cannot be built or, if none has ever worked, not be reset, EnvironmentFailedError if one
        fails, FilmError if films cannot be written or go on, and what `messages` raises.
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
            for group, data in split(message, self._action_layouts):
                self._watch.begin(self._groups[group], self._step_deadline_seconds)
                try:
                    step = self._groups[group].step(memoryview(data))
                finally:
                    self._watch.end()
                self._quarantine.has_worked = True
                # Only now: what arrived twice is refused by then, and answers a step once.
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
                num_envs=len(self._quarantine.live),
                num_groups=self._offer.num_groups,
                host=socket.gethostname(),
                pid=os.getpid(),
                sent=self._sent_log.report(),
                plays_recording=self._offer.recording is not None,
                num_quarantined=self._quarantine.num_out,
                quarantine=self._quarantine.reason,
            )
        )

    def _start(self, assign: Assign) -> None:
        if self._groups:
            raise WireError("expected actions or Finish after the handshake, got another Assign")
        self._learner_minor = assign.minor
        self._step_deadline_seconds = assign.step_deadline_seconds
        self._sent_log.open(assign.lease, [len(group.slots) for group in assign.groups])
        try:
            check_assign(assign, len(self._quarantine.live))
            self._watch.begin(None, _BUILDING_SECONDS)
            self._build(assign)
            self._check_lengths(assign.max_message_bytes)
            # Before Ready: what cannot even be reset is refused like what cannot be built.
            first = self._first_steps(assign)
        except BuildError as error:
            self._outbox.put(FromEnvServer(refusal=Refusal(reason=str(error))))
            raise
        finally:
            self._watch.end()
        self._action_layouts = [group.action_layout for group in self._groups]
        ready = Ready(spec=encode_spec(self._groups[0].spec), metrics=self._metrics(assign))
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
        recording = self._offer.recording
        if recording is not None:
            self._groups = [
                PlayedGroup(index, recording, group.slots, first_row=group.first_row)
                for index, group in enumerate(assign.groups)
            ]
            return
        allowed, metrics = self._offer.allowed, self._metrics(assign)
        recipes = read_recipes(assign.environments, allowed)
        self._quarantine.budget = budget(assign)
        live = iter(self._quarantine.live)
        next_position = 0
        for index, group in enumerate(assign.groups):
            places = [Place(next(live), slot) for slot in group.slots]
            idle = _gaps([next_position, *(place.position + 1 for place in places)])
            next_position = places[-1].position + 1
            seeds = [int(seed) for seed in group.seeds]
            asked = assign.environments[group.environment]
            recipe = recipes[group.environment]
            environment = self._build_group(recipe, asked.vectorization, idle)
            # What this environment was not asked for is NaN: "" is no name of a number.
            names = [name if name in asked.metrics else "" for name in metrics]
            bound = asked.max_abs_reward
            try:
                self._groups.append(
                    EnvGroup(index, environment, seeds, names, places=places, max_abs_reward=bound)
                )
                _check_spec(self._groups[0].spec, self._groups[-1].spec)
            except BuildError:
                environment.close()
                raise

    def _build_group(self, recipe: Recipe, back_end: str, idle: list[int]) -> VectorEnvironment:
        if self._offer.films is None:
            return build(recipe, back_end, len(idle), idle_before=idle)
        if len(idle) != 1:
            raise BuildError(f"expected one environment to film, got {len(idle)}")
        if self._broken_off:
            # Which episodes the learner has counted is not known here: the numbers of films would
            # no longer be those of its returns.
            raise FilmError(f"the films were broken off: {self._broken_off}")
        return build_filmed(recipe, back_end, self._offer.films)

    def _check_lengths(self, max_message_bytes: int) -> None:
        longest = max(group.longest_message_bytes for group in self._groups)
        if max_message_bytes and longest > max_message_bytes:
            raise BuildError(
                f"expected steps of at most {max_message_bytes} bytes, as the learner takes, they "
                f"would be of {longest}; offer fewer environments, or raise "
                "serving.max_message_bytes"
            )

    def _first_steps(self, assign: Assign) -> list[FramedStep | None]:
        first = []
        try:
            for group in self._groups:
                self._watch.begin(group, _BUILDING_SECONDS)
                first.append(group.first())
            return first
        except EnvironmentFailedError as error:
            if not self._quarantine.is_defect(error.position):
                raise
            names = ", ".join(environment.id for environment in assign.environments)
            raise BuildError(f"cannot start {names}: {error}") from error

    def _metrics(self, assign: Assign) -> list[str]:
        """The numbers that LAST rows carry: those that any environment was asked for."""
        if self._offer.recording is not None:
            return []
        return list(dict.fromkeys(name for item in assign.environments for name in item.metrics))


def _gaps(ends: list[int]) -> list[int]:
    """How many positions lie between each of `ends` and the environment that ends at the next."""
    return [after - 1 - before for before, after in itertools.pairwise(ends)]


def _check_spec(spec: EnvSpec, other: EnvSpec) -> None:
    if difference := spec.difference(other):
        raise BuildError(f"expected environments of one spec: {'; '.join(difference)}")
