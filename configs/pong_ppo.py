"""PPO on Pong in 42 x 42 frames: a policy without memory, on two CPU cores.

Asynchronous: env servers play while a batch is learned from. Of frames of a quarter of the usual
size the small convolutions of IMPALA take a nineteenth of the multiplications that those of DQN
take of usual ones, and the ball can still be seen. As in the Atari settings of the paper the
learning rate falls to 0 over the run, ratios are clipped at 0.1 and there are 3 epochs. The entropy
costs half of what it does there: at 0.01 the policy had hardly left uniform after 900,000 steps.

Command: `seedrl train pong_ppo`.

Lab record
  Score, environment steps, wall time, hardware, date, commit: not yet measured.
"""

from seedrl.agents.ppo.config import PpoConfig
from seedrl.config import (
    Config,
    EnvironmentConfig,
    EvaluationConfig,
    LaunchConfig,
    LearningConfig,
    ServingConfig,
)
from seedrl.networks.actor_critic import ActorCriticConfig
from seedrl.replay.queue import QueueConfig


def config() -> Config:
    """PPO on Pong."""
    return Config(
        environment=EnvironmentConfig(
            id="ALE/Pong-v5",
            arguments='{"img_height": 42, "img_width": 42}',
            vectorization="atari",
            frames_per_step=4,
        ),
        agent=PpoConfig(
            network=ActorCriticConfig(
                torso="shallow", torso_sizes=(256,), core="none", frame_stack=4
            ),
            unroll=31,
            epochs=3,
            minibatches=8,
            gamma=0.99,
            trace_lambda=0.95,
            clip=0.1,
            value_cost=0.5,
            entropy_cost=0.005,
            reward_clip=1.0,
            learning_rate=7e-4,
            learning_rate_decay_updates=4_000,
        ),
        serving=ServingConfig(training_slots=64, evaluation_slots=16),
        replay=QueueConfig(ahead_updates=1),
        learning=LearningConfig(batch_sequences=64, total_steps=8_000_000, keep_freed_memory=True),
        evaluation=EvaluationConfig(
            interval_seconds=180.0, episodes=16, target_return=18.0, confirm_episodes=100
        ),
        launch=LaunchConfig(env_servers=2),
    )
