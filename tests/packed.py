"""Step payloads as a learner receives them: without the head of their message."""

import numpy as np

from seedrl.types import TimeStep
from seedrl.wire.framing import StepPayload, receive_from_env_server
from seedrl.wire.payload import StepLayout


def packed(
    layout: StepLayout,
    group: int,
    sequence: int,
    timestep: TimeStep,
    metrics: np.ndarray | None = None,
) -> bytes:
    """The payload of `timestep`; see `StepLayout.pack_framed`."""
    message = layout.pack_framed(group, sequence, timestep, metrics).message
    payload = receive_from_env_server(message)
    assert isinstance(payload, StepPayload)
    return bytes(payload)
