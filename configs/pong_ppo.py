"""PPO on Pong in 42 x 42 frames: a policy without memory, on two CPU cores.

Asynchronous: env servers play while a batch is learned from. Frames are of a quarter of the usual
size, and the ball is a fraction of a pixel, which `normalize_images` brings out: see below. The
rest is the paper's for Atari, but for the learning rate, which is twice as high: 3 epochs of 4
minibatches of rows, from 8 rollouts of 128; ratios are clipped at 0.1, and the learning rate falls
to 0 over the run. `value_cost` weighs half of a squared error, so that 2 is the paper's 1: it is
from the value that the torso learns first what there is to see.

Command: `seedrl train pong_ppo`.

Lab record
  Seed 0 on two cores of an EPYC, 2026-11-24, one run each; environment steps until the mean return
  of the last 100 training episodes, exploration included, was 0, and 15:
  - what is below, 4e99177, with the machine to itself: 581,000, 695,000 (241 and 286 s); 18 after
    759,000 (311 s), 19.8 at the end, after 54 minutes, and 20.00 over 100 fresh episodes, each of
    them (actions are not sticky, so episodes differ little). docs/learning.md has its curve, and
    that of Sample Factory's APPO.
  - the same, code of f08c4fb, but for a learning rate that falls to 0 in 4,000 updates, as in
    the next two: 504,000, 625,000; and 18 after 841,000 (724 s beside two other trainings, as long
    as it was run).
  - with `value_cost` 0.5: 715,000, 1,118,000 (337 and 509 s, with the machine to itself).
  - and with minibatches of two whole rollouts, chunk_steps 0: 926,000, 1,447,000 (394 and 616 s).
  - and with the small network of IMPALA, batches of 16 in 8 parts and half the entropy_cost, commit
    922dc43, an hour: 1,155,000, 1,842,000; 18 after 2,386,000, 19.2 to 19.5 from 3,000 s on; 20.00
    over 100 fresh episodes.
  Without normalized images, in rollouts of 32 rows (b8478dd): -19.4 after 1,800,000 steps, -13
  after 4,900,000 (an hour). Each image by itself with mean 0 and deviation 1: as low, but the value
  explains its targets five times as early.
"""

from seedrl.agents.ppo import PpoConfig
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
                torso="nature", torso_sizes=(256,), core="none", frame_stack=4
            ),
            unroll=128,
            epochs=3,
            minibatches=4,
            chunk_steps=1,
            gamma=0.99,
            gae_lambda=0.95,
            clip=0.1,
            value_cost=2.0,
            entropy_cost=0.01,
            normalize_images=True,
            reward_clip=1.0,
            learning_rate=5e-4,
            learning_rate_decay_updates=8_000,
        ),
        serving=ServingConfig(training_slots=32, evaluation_slots=8),
        replay=QueueConfig(ahead_updates=1),
        learning=LearningConfig(batch_sequences=8, total_steps=8_000_000, keep_freed_memory=True),
        evaluation=EvaluationConfig(
            interval_seconds=180.0, episodes=16, target_return=18.0, confirm_episodes=100
        ),
        launch=LaunchConfig(env_servers=2),
    )
