"""The Connect method for tests that speak in messages; an env server itself sends bytes."""

import grpc

from seedrl.wire.channel import CONNECT
from seedrl.wire.framing import encode_from_env_server, receive_from_learner


def connect_method(channel: grpc.Channel) -> grpc.StreamStreamMultiCallable:
    """Call it with an iterator of `ToLearner`; it yields what `receive_from_learner` gives."""
    return channel.stream_stream(
        CONNECT,
        request_serializer=encode_from_env_server,
        response_deserializer=receive_from_learner,
    )
