"""GRPO on words to be reversed: a small decoder, on two CPU cores.

Start it from `seedrl pretrain reverse_grpo --steps 400`: a policy that starts from nothing never
earns a reward. A score is the share of right answers to held-out words, sampled as in training.

One seed, on two cores that other programs shared: the share of right answers in training rose from
0.18 to 0.52 within 75,376 rollouts, 294 updates and 235 seconds. The target was not reached.
2026-11-27, commit a11bccb0.
"""

from seedrl.agents.grpo import GRPOConfig
from seedrl.config import (
    Config,
    EnvironmentConfig,
    EvaluationConfig,
    LaunchConfig,
    LearningConfig,
    ServingConfig,
)
from seedrl.networks.decoder import DecoderConfig
from seedrl.replay.group_queue import GroupQueueConfig


def config() -> Config:
    return Config(
        environment=EnvironmentConfig(
            id="envs_server.envs.token_tasks:reverse", metrics=("exact",)
        ),
        agent=GRPOConfig(
            network=DecoderConfig(
                vocabulary=28, layers=2, width=64, heads=4, kv_heads=2, ffn=192, context=20
            ),
            group=16,
            learning_rate=3e-4,
            adam_b2=0.999,
            max_gradient_norm=0.5,
        ),
        serving=ServingConfig(training_slots=64, evaluation_slots=64),
        replay=GroupQueueConfig(max_lag_updates=2),
        learning=LearningConfig(batch_sequences=256, total_steps=2_000_000),
        evaluation=EvaluationConfig(
            episodes=200, interval_steps=10_000, actions="stochastic", target_return=0.95
        ),
        # Groups of one environment: a completion that has ended waits for no other.
        launch=LaunchConfig(env_servers=2, groups=64),
    )
