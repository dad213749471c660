"""IMPALA on Atari with the settings of the paper (Espeholt et al. 2018, appendix), deep network.

Another game: `--environment.id ALE/Breakout-v5`; less work: `--agent.network.torso nature`. The
paper sums the loss over the 640 steps of a batch, ours is a mean: its gradient norm of 40 and its
epsilon, 0.01 inside the root, are divided accordingly. Not from the paper: an episode ends with the
game and not with a life; 192 environments. Not measured.
"""

from seedrl.agents.impala import ImpalaConfig
from seedrl.config import (
    Config,
    EnvironmentConfig,
    EvaluationConfig,
    LaunchConfig,
    LearningConfig,
    ServingConfig,
)
from seedrl.networks.config import ActorCriticConfig
from seedrl.replay.queue import QueueConfig

_STEPS = 50_000_000
_ROWS = 20 * 32  # trained of a batch; a sequence has one more, to bootstrap from


def config() -> Config:
    return Config(
        environment=EnvironmentConfig(id="ALE/Pong-v5", vectorization="atari", frames_per_step=4),
        agent=ImpalaConfig(
            network=ActorCriticConfig(torso="impala", core="none", frame_stack=4),
            unroll=20,
            reward_clip=1.0,
            learning_rate=6e-4,
            learning_rate_decay_steps=_STEPS,
            # Costs and the decays of Adam are the paper's by default.
            adam_epsilon=0.01**0.5 / _ROWS,
            max_gradient_norm=40.0 / _ROWS,
        ),
        serving=ServingConfig(training_slots=192, evaluation_slots=16),
        replay=QueueConfig(),
        learning=LearningConfig(batch_sequences=32, total_steps=_STEPS, keep_freed_memory=True),
        evaluation=EvaluationConfig(episodes=16),
        launch=LaunchConfig(env_servers=8),
    )
