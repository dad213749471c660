"""gRPC's own health service (`grpc.health.v1.Health/Check`), for probes that speak gRPC."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc

from seedrl.wire.channel import SERVICE

# HealthCheckRequest has one field, the name of a service: `string service = 1`. Of the server as a
# whole, or of ours.
_KNOWN = (b"", b"\x0a" + bytes([len(SERVICE)]) + SERVICE.encode())
_SERVING = b"\x08\x01"  # HealthCheckResponse: `ServingStatus status = 1`


def health_handler(admit: Callable[[Any], Awaitable[None]]) -> grpc.GenericRpcHandler:
    """Answers that the learner serves, for as long as it does; `admit` looks at the call first."""

    async def check(requests: AsyncIterator[bytes], context: Any) -> bytes:
        await admit(context)
        async for request in requests:
            if request in _KNOWN:
                return _SERVING
        await context.abort(grpc.StatusCode.NOT_FOUND, f"expected {SERVICE}, or no name")
        raise AssertionError("abort raises")

    # A stream on this side, so that nothing is read before the call is admitted.
    method: Any = grpc.stream_unary_rpc_method_handler(check)
    return grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": method})
