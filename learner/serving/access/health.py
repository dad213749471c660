"""gRPC's own health service (`grpc.health.v1.Health/Check`), for probes that speak gRPC."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc

from learner.serving.handshake.deadlines import HELLO_SECONDS
from seedrl.wire.channel import SERVICE

# HealthCheckRequest has one field, the name of a service: `string service = 1`. Of the server as a
# whole, or of ours.
_KNOWN = (b"", b"\x0a" + bytes([len(SERVICE)]) + SERVICE.encode())
_SERVING = b"\x08\x01"  # HealthCheckResponse: `ServingStatus status = 1`
# They count among the calls that a server can have at once, of which env servers need most.
MOST_PROBES = 16


def health_handler(
    admit: Callable[[Any], Awaitable[None]], on_end: Callable[[Any], Callable[[], object]]
) -> grpc.GenericRpcHandler:
    """Answers that the learner serves, for as long as it does.

    Args:
      admit: looks at a call first.
      on_end: of a call: what to do when all that is left is that its peer takes the answer.
    """
    num_probes = 0

    async def check(requests: AsyncIterator[bytes], context: Any) -> bytes:
        nonlocal num_probes
        await admit(context)
        end = on_end(context)
        if num_probes >= MOST_PROBES:
            reason = f"{MOST_PROBES} probes have not sent their request yet; try again"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, reason)
        num_probes += 1
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                request = await anext(requests, None)
        except TimeoutError:
            reason = f"expected a request within {HELLO_SECONDS:.0f} seconds"
            await context.abort(grpc.StatusCode.UNAVAILABLE, reason)
        finally:
            num_probes -= 1
            end()
        if request in _KNOWN:
            return _SERVING
        # So gRPC's protocol of health wants it; all else of ours ends in one of five statuses.
        await context.abort(grpc.StatusCode.NOT_FOUND, f"expected {SERVICE}, or no name")
        raise AssertionError("abort raises")

    # A stream on this side, so that nothing is read before the call is admitted.
    method: Any = grpc.stream_unary_rpc_method_handler(check)
    return grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": method})
