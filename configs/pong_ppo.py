"""PPO on Pong in 42 x 42 frames: a policy without memory, on two CPU cores.

Asynchronous: env servers play while a batch is learned from. Of frames of a quarter of the usual
size the small convolutions of IMPALA take a nineteenth of the multiplications that those of DQN
take of usual ones, and the ball is a fraction of a pixel, which `normalize_images` brings out: see
below. As in the Atari settings of the paper the learning rate falls to 0 over the run, ratios are
clipped at 0.1, rollouts have 128 rows and there are 3 epochs. The entropy costs half of what it
does there, and the learning rate is twice as high.

Command: `seedrl train pong_ppo`.

Lab record
  Seed 0, an hour on two cores of an EPYC with nothing else running, 2026-11-23, commit 922dc43;
  mean returns of the last 100 training episodes, exploration included: 0 after 813 s (1,155,000
  environment steps), 10 after 1,051 s, 15 after 1,153 s, 18 after 1,665 s (2,386,000), 19.2 to 19.5
  from 3,000 s on; 5,084,393 steps. What the hour ends with, over 100 fresh episodes: 20.00, each of
  them (actions are not sticky, so episodes differ little). docs/learning.md has the curve, and that
  of Sample Factory's APPO on the same machine.
  The day before on a Xeon, by episodes of some seconds: 8.3 after 562 s, 18.4 after 714 s, 16 to 18
  until 776 s, where it was ended.
  Without normalized images, in rollouts of 32 rows (b8478dd): -19.4 after 1,800,000 steps, -13
  after 4,900,000 (an hour); in rollouts of 128, beside another process: -20.5 after 230,000. Each
  image by itself with mean 0 and deviation 1: as low, but the value explains its targets five times
  as early.
  Updates of 8 rollouts in 4 minibatches with entropy_cost 0.01 and normalize_rewards (450206d,
  taken back, for it was run for 14 minutes only): -0.2 after 918,000 steps (540 s), 0.3 after
  1,006,000, 4.2 after 1,368,000 (852 s): sooner at 0, where it stays as long. A learning rate of
  2.5e-4 does not change that; a larger network was not tried. 64 rollouts of 32 rows: -19.9 after
  383,000.
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
            unroll=127,
            epochs=3,
            minibatches=8,
            gamma=0.99,
            trace_lambda=0.95,
            clip=0.1,
            value_cost=0.5,
            entropy_cost=0.005,
            normalize_images=True,
            reward_clip=1.0,
            learning_rate=5e-4,
            learning_rate_decay_updates=4_000,
        ),
        serving=ServingConfig(training_slots=32, evaluation_slots=8),
        replay=QueueConfig(ahead_updates=1),
        learning=LearningConfig(batch_sequences=16, total_steps=8_000_000, keep_freed_memory=True),
        evaluation=EvaluationConfig(
            interval_seconds=180.0, episodes=16, target_return=18.0, confirm_episodes=100
        ),
        launch=LaunchConfig(env_servers=2),
    )
