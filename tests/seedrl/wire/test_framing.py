"""Messages keep to protobuf's encoding, in one form only."""

from collections.abc import Callable

import pytest

from seedrl.wire.framing import (
    ActionsPayload,
    StepPayload,
    WireError,
    encode_from_env_server,
    encode_from_learner,
    frame_step,
    join_steps,
    receive_from_env_server,
    receive_from_learner,
)
from seedrl.wire.seedrl_pb2 import FromEnvServer, FromLearner, Hello

_HELLO = FromEnvServer(hello=Hello(major=1, num_envs=4, host="somewhere"))


def test_a_step_is_tag_length_and_content() -> None:
    assert encode_from_env_server(StepPayload(b"\x07\x08")) == b"\x1a\x02\x07\x08"
    assert encode_from_env_server(frame_step(2, (b"\x07", b"\x08"))) == b"\x1a\x02\x07\x08"
    assert encode_from_learner(ActionsPayload(b"\x07")) == b"\x12\x01\x07"


def test_joined_steps_are_one_message_of_their_contents() -> None:
    steps = [frame_step(len(content), [content]).message for content in (b"\x07", b"\x08" * 200)]
    assert join_steps(steps) == frame_step(201, [b"\x07", b"\x08" * 200]).message
    assert join_steps(steps[:1]) == steps[0]


@pytest.mark.parametrize("size", [2, 2**15])
def test_a_framed_step_has_the_bytes_of_its_parts(size: int) -> None:
    step = frame_step(2 * size, (bytes(size), b"\1" * size))
    assert step.message == encode_from_env_server(StepPayload(bytes(size) + b"\1" * size))
    assert step.num_bytes == len(step.message) == sum(map(len, step.parts))


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 20 * 2**20])
def test_protobuf_reads_what_we_frame_and_we_read_what_it_writes(size: int) -> None:
    content = bytes(range(251)) * (size // 251) + bytes(range(size % 251))
    step = encode_from_env_server(StepPayload(content))
    assert FromEnvServer.FromString(step).step == content
    assert step == FromEnvServer(step=content).SerializeToString()
    assert bytes(receive_from_env_server(step)) == content
    actions = encode_from_learner(ActionsPayload(content))
    assert FromLearner.FromString(actions).actions == content
    assert actions == FromLearner(actions=content).SerializeToString()
    assert bytes(receive_from_learner(actions)) == content


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\x1a", id="no length"),
        pytest.param(b"\x1a\x80", id="half a length"),
        pytest.param(b"\x1a\x80\x00", id="length longer than needed"),
        pytest.param(b"\x1a\xff\xff\xff\xff\xff\x01", id="length without end"),
        pytest.param(b"\x1a\x02\x07", id="truncated"),
        pytest.param(b"\x1a\x01\x07\x08", id="overlong"),
        pytest.param(b"\x1a\x01\x07\x1a\x01\x07", id="two steps"),
        pytest.param(_HELLO.SerializeToString() + b"\x1a\x00", id="hello and step"),
        pytest.param(_HELLO.SerializeToString() * 2, id="two hellos"),
        pytest.param(b"\x7a\x00", id="unknown field"),
        pytest.param(b"\x0a\x01\xff", id="broken hello"),
        pytest.param(b"\x1b\x00", id="step with another wire type"),
        pytest.param(b"\x18\x02\x1a\x00", id="a number before the step"),
        pytest.param(b"\x9a\x00\x01\x07", id="tag longer than needed"),
    ],
)
def test_any_other_encoding_is_refused(data: bytes) -> None:
    assert isinstance(receive_from_env_server(data), WireError)


@pytest.mark.parametrize("receive", [receive_from_env_server, receive_from_learner])
@pytest.mark.parametrize("data", [b"\x0a\x02\x0a\x05" + bytes(9), b"\x0a\x02\xff\xff"])
def test_the_error_of_a_message_does_not_keep_the_message(
    receive: Callable[[bytes], object], data: bytes
) -> None:
    error = receive(data)
    assert isinstance(error, WireError)
    # A traceback has the frames that held it, and so have the errors before.
    assert (error.__traceback__, error.__cause__, error.__context__) == (None, None, None)
