"""The messages of a handshake (Hello, Assign, Ready), and the longest message of a run."""

from collections.abc import Sequence

import grpc
import numpy as np

from learner.serving.core import ProtocolError
from learner.serving.ledger import SentSteps
from learner.serving.peer import Admission, EndError, Offer
from seedrl.config import EnvironmentConfig, ServingConfig
from seedrl.specs import EnvSpec
from seedrl.wire import seedrl_pb2, spec, version
from seedrl.wire.action_layout import ActionLayout
from seedrl.wire.payload import StepLayout
from seedrl.wire.printable import printable

# It is its sender's word, and added to that of others.
_MOST_QUARANTINED = 2**16
_LONGEST_QUARANTINE = 400
# The limit of a message as long as no spec is known.
UNKNOWN_BYTES = 4 * 2**20
# For the headers of several groups in one message, and the tag and length before them.
_SPARE = 1.25


def offer_of(peer: str, hello: seedrl_pb2.Hello) -> Offer:
    """What the env server of that name offers.

    Raises EndError for another wire version, and ProtocolError for an offer of no environment.
    """
    if hello.major != version.MAJOR:
        raise EndError(
            grpc.StatusCode.FAILED_PRECONDITION,
            f"expected wire version {version.MAJOR}.x, got {hello.major}.{hello.minor}; "
            "install the same seedrl on both sides",
        )
    if hello.num_envs < 1:
        raise ProtocolError("expected num_envs >= 1, got 0")
    sent = tuple(
        SentSteps(sent.lease, sent.group, sent.num_envs, sent.steps, sent.answered)
        for sent in hello.sent
    )
    earlier = frozenset(report.lease for report in sent)
    return Offer(
        peer,
        hello.num_envs,
        hello.num_groups,
        hello.plays_recording,
        sent,
        earlier,
        min(hello.num_quarantined, _MOST_QUARANTINED),
        printable(hello.quarantine, _LONGEST_QUARANTINE),
    )


def assignment(
    environment: EnvironmentConfig,
    admission: Admission,
    *,
    max_message_bytes: int,
    step_deadline_seconds: float,
) -> seedrl_pb2.Assign:
    """What an env server that was admitted has to build and to keep to."""
    lease = admission.lease
    return seedrl_pb2.Assign(
        lease=lease.key,
        minor=version.MINOR,
        max_message_bytes=max_message_bytes,
        step_deadline_seconds=step_deadline_seconds,
        environments=[
            seedrl_pb2.Environment(
                id=environment.id,
                arguments=environment.arguments,
                wrappers=environment.wrappers,
                vectorization=environment.vectorization,
                metrics=environment.metrics,
                max_abs_reward=environment.max_abs_reward,
                failures_per_minute=environment.failures_per_minute,
                failures_per_hour=environment.failures_per_hour,
            )
        ],
        groups=[
            seedrl_pb2.Group(
                slots=group.slots.tolist(),
                seeds=seeds,
                evaluation=group.role == "evaluation",
                first_row=lease.resumed_at or 0,
            )
            for group, seeds in zip(lease.groups, admission.seeds, strict=True)
        ],
    )


def spec_of(ready: seedrl_pb2.Ready) -> EnvSpec:
    """What an env server has built. Raises ProtocolError if that is no environment."""
    try:
        return spec.spec_of(ready.spec)
    except ValueError as error:
        raise ProtocolError(str(error)) from error


def columns_of(ready: seedrl_pb2.Ready, wanted: Sequence[str]) -> np.ndarray:
    """Where in a row of metrics each of those that are `wanted` is; -1 if it is not in it.

    Raises ProtocolError for others, and for one that is named twice.
    """
    names = list(ready.metrics)
    if len(set(names)) != len(names) or not set(names) <= set(wanted):
        raise ProtocolError(f"expected metrics among {list(wanted)}, each once, in ready")
    return np.array([names.index(name) if name in names else -1 for name in wanted], int)


def message_limit(
    serving: ServingConfig, environment: EnvironmentConfig, spec: EnvSpec | None
) -> int:
    """Bytes of the longest message: what the configuration says, or what all slots can need.

    Whoever is connected can make the learner hold that much, and two and a half times for a moment.

    Args:
      serving, environment: of the configuration.
      spec: what environments look like, if a checkpoint says so.
    """
    if serving.max_message_bytes:
        return serving.max_message_bytes
    if spec is None:
        return UNKNOWN_BYTES
    slots = serving.training_slots + serving.evaluation_slots
    steps = StepLayout(spec, slots, len(environment.metrics)).most_bytes
    # Of many numbers in a box, actions may be longer than observations.
    longest = max(steps, ActionLayout(spec.action, slots).num_bytes)
    return max(version.LEAST_MESSAGE_BYTES, int(longest * _SPARE))
