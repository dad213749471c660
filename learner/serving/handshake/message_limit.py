"""The longest message that a learner takes."""

from seedrl.config import EnvironmentConfig, ServingConfig
from seedrl.specs import EnvSpec
from seedrl.wire.action_layout import ActionLayout
from seedrl.wire.payload import StepLayout
from seedrl.wire.version import LEAST_MESSAGE_BYTES

# While nobody knows what an observation looks like.
UNKNOWN_BYTES = 4 * 2**20
# For the headers of several groups in one message, and the tag and length before them.
_SPARE = 1.25


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
    return max(LEAST_MESSAGE_BYTES, int(longest * _SPARE))
