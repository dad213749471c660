"""How long a message may be."""

from learner.serving.handshake import message_limit
from seedrl.config import EnvironmentConfig, ServingConfig
from seedrl.specs import ArraySpec, BoxSpec, DiscreteSpec, EnvSpec
from seedrl.wire.action_layout import ActionLayout
from seedrl.wire.payload import StepLayout

ENVIRONMENT = EnvironmentConfig(id="Some-v0", metrics=("score",))
IMAGES = EnvSpec(ArraySpec((84, 84), "uint8"), DiscreteSpec(2))


def test_it_is_what_all_slots_together_take_and_a_quarter_more() -> None:
    serving = ServingConfig(training_slots=20, evaluation_slots=12)
    limit = message_limit(serving, ENVIRONMENT, IMAGES)
    assert 1.2 < limit / (32 * 84 * 84) < 1.3
    assert limit >= StepLayout(IMAGES, 32, 1).most_bytes


def test_actions_that_are_longer_than_observations_fit() -> None:
    reaching = EnvSpec(ArraySpec((1,), "float32"), BoxSpec((1024,), (-1.0,) * 1024, (1.0,) * 1024))
    serving = ServingConfig(training_slots=20, evaluation_slots=12)
    limit = message_limit(serving, ENVIRONMENT, reaching)
    assert limit >= ActionLayout(reaching.action, 32).num_bytes
