"""Whether a call may begin, before anything of it is read."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any, NoReturn

import grpc

from learner.serving.access.pace import Pace
from learner.serving.access.tcp_connection import host_of, neighbourhood_of
from learner.serving.access.token_check import TokenCheck
from learner.serving.hub import Hub
from learner.serving.peer import EndError
from seedrl.config import ServingConfig

# Refusals that wait; each is one of the calls that a server can have at once. More are immediate.
MOST_WAITING = 64
# Who calls again at once would do so thousands of times a second.
_PAUSE_SECONDS = 0.5
# A bucket holds what this many seconds bring, and a call for each slot: more env servers than that
# have no place at once.
_BURST_SECONDS = 2.0
# Env servers do not break the contract, and reading what does so may cost as much as many calls.
_BREACH_SECONDS = 1.0
# To the end of those that break it together: until then their messages are held.
_CLEAN_SECONDS = 0.2
# Between two looks at how many were refused, and between two lines of the log.
_LOOK_SECONDS = 1.0
_LINE_SECONDS = 60.0

_logger = logging.getLogger(__name__)


class Entry:
    """Admits calls that show the token and do not come too fast. Used by the service's loop alone.

    Calls of one address that show the token have a pace of their own, so that those that do not
    take nothing from them. All calls over Unix sockets are of one address.
    """

    def __init__(
        self,
        hub: Hub,
        config: ServingConfig,
        call_later: Callable[[float, Callable[[], None]], Any],
        clock: Callable[[], float],
        clean_up: Callable[[], object],
    ):
        """`call_later` and `clock` are a loop's. Raises ConfigError for a file without a token.

        `clean_up` gives back the memory that broken messages have taken; it does not wait.
        """
        self._hub = hub
        self._token = TokenCheck(config.token_file)
        self._call_later, self._clock = call_later, clock
        self._per_second = per_second = config.handshakes_per_second
        slots = config.training_slots + config.evaluation_slots
        burst = slots + _BURST_SECONDS * per_second
        self._paces = {has_token: Pace(per_second, burst, clock) for has_token in (True, False)}
        self._too_fast = EndError(
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            f"expected at most {burst:g} connections of one address at once, {per_second:g} a "
            "second (serving.handshakes_per_second); come back later",
        )
        self._clean_up, self._is_clean = clean_up, True
        self._num_waiting = 0
        # By address, those that came too fast: since the last look, and since the last line.
        self._new, self._unsaid = Counter[str](), Counter[str]()
        self._is_looking = False
        self._next_line = 0.0

    async def admit(self, context: "grpc.aio.ServicerContext[Any, Any]") -> None:
        """Returns if the call of `context` may begin; else it ends the call."""
        has_token = self._token.admits(context.invocation_metadata())
        address = neighbourhood_of(context.peer())
        if not self._paces[has_token].take(address):
            await self._slow_down(address, context)
        if has_token:
            return
        unknown = EndError(
            grpc.StatusCode.UNAUTHENTICATED,
            "expected the learner's token; start the env server with --token-file",
        )
        self._hub.turn_away(host_of(context.peer()), unknown)
        await context.abort(unknown.code, unknown.details)

    def end(self, context: "grpc.aio.ServicerContext[Any, Any]", error: EndError) -> None:
        """Notes how an admitted call ends: who breaks the contract has to wait for the next one."""
        if error.code is grpc.StatusCode.INVALID_ARGUMENT:
            address = neighbourhood_of(context.peer())
            self._paces[True].charge(address, self._per_second * _BREACH_SECONDS)
            if self._is_clean:
                self._is_clean = False
                self._call_later(_CLEAN_SECONDS, self._clean)

    def _clean(self) -> None:
        self._is_clean = True
        self._clean_up()

    async def _slow_down(
        self, address: str, context: "grpc.aio.ServicerContext[Any, Any]"
    ) -> NoReturn:
        self._note(address)
        if self._num_waiting < MOST_WAITING:
            self._num_waiting += 1
            try:
                await asyncio.sleep(_PAUSE_SECONDS)
            finally:
                self._num_waiting -= 1
        await context.abort(self._too_fast.code, self._too_fast.details)
        raise AssertionError("abort raises")

    def _note(self, address: str) -> None:
        # Not each to the hub: its lock is what acting waits for.
        self._new[address] += 1
        if not self._is_looking:
            self._is_looking = True
            self._call_later(_LOOK_SECONDS, self._look)

    def _look(self) -> None:
        for address, number in self._new.items():
            self._hub.turn_away(address, self._too_fast, number)
        self._unsaid += self._new
        self._new.clear()
        if self._unsaid and self._clock() >= self._next_line:
            self._next_line = self._clock() + _LINE_SECONDS
            ((address, number),) = self._unsaid.most_common(1)
            _logger.warning(
                "warning: %d connections were refused, %d of them of %s: %s",
                self._unsaid.total(),
                number,
                address,
                self._too_fast.details,
            )
            self._unsaid.clear()
        self._is_looking = bool(self._unsaid)
        if self._is_looking:
            self._call_later(_LOOK_SECONDS, self._look)
