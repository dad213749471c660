"""How a connection ends: the status that its env server understands."""

import logging

import grpc

from learner.serving.core import PlaybackError, ProtocolError
from learner.serving.leases import CutStreamError, NoFreeSlotError
from seedrl.wire.framing import WireError

_logger = logging.getLogger(__name__)


class EndError(Exception):
    """Ends one connection with a status that its env server understands; the text is one line.

    `is_reported`: the learner's user hears of it in another way, or need not.
    """

    def __init__(self, code: grpc.StatusCode, details: str, *, is_reported: bool = False):
        super().__init__(details)
        self.code = code
        self.details = details
        self.is_reported = is_reported


def verdict(error: Exception, peer: str) -> EndError:
    """How a connection ends after `error`: the env server's fault, or ours."""
    match error:
        case EndError():
            return error
        case ProtocolError() | WireError():
            return EndError(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        case NoFreeSlotError():
            return EndError(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        case CutStreamError() | PlaybackError():
            return EndError(grpc.StatusCode.FAILED_PRECONDITION, str(error))
    # The text of an unexpected exception could hold anything: it stays in our own log.
    _logger.error("reading from env server %s failed", peer, exc_info=error)
    return EndError(grpc.StatusCode.INTERNAL, "internal error; see the learner's log")
