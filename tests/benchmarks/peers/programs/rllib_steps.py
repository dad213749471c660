"""RLlib's IMPALA or APPO on CartPole-v1, which samples and learns while it is asked how fast.

The first command is `{"algorithm": name, "envs_per_runner": n, "batch": steps, "lstm": bool}`. Then
`{"seconds": s}` is answered with `{"rate": r}`, sampled environment steps a second, and `{"end":
true}` shuts Ray down.
"""

import time
from typing import Any

import ray
from answering import commands
from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

_CONFIGS = {"IMPALA": IMPALAConfig, "APPO": APPOConfig}
_RUNNERS = 2
_WARM_UP_SECONDS = 15.0


def main() -> None:
    lines = commands()
    command, answer = next(lines)
    # One for each runner, and one for the learner in this process.
    ray.init(num_cpus=_RUNNERS + 1, num_gpus=0, include_dashboard=False)
    algorithm = configuration(command).build_algo()
    start = time.perf_counter()
    while time.perf_counter() - start < _WARM_UP_SECONDS:
        algorithm.train()
    answer(ready=True)
    for command, answer in lines:
        if "end" in command:
            algorithm.stop()
            ray.shutdown()
            answer(ended=True)
        else:
            answer(rate=rate(algorithm, command["seconds"]))


def configuration(command: dict[str, Any]) -> Any:
    """Learns in this process, without an accelerator; reports whenever it is asked."""
    network = {
        "fcnet_hiddens": [64],
        "head_fcnet_hiddens": [],
        "use_lstm": True,
        "lstm_cell_size": 64,
        "max_seq_len": 25,
    }
    config = (
        _CONFIGS[command["algorithm"]]()
        .environment("CartPole-v1")
        .env_runners(
            num_env_runners=_RUNNERS,
            num_envs_per_env_runner=command["envs_per_runner"],
            rollout_fragment_length=50,
        )
        .learners(num_learners=0, num_gpus_per_learner=0)
        .training(train_batch_size_per_learner=command["batch"])
        .reporting(min_time_s_per_iteration=0.5, metrics_num_episodes_for_smoothing=10)
    )
    if command["lstm"]:
        config = config.rl_module(model_config=DefaultModelConfig(**network))
    return config


def rate(algorithm: Any, seconds: float) -> float:
    """Sampled environment steps a second, over whole iterations: until some were sampled."""
    before = after = sampled(algorithm.train())
    start = time.perf_counter()
    elapsed = 0.0
    while elapsed < seconds or after == before:
        after = sampled(algorithm.train())
        elapsed = time.perf_counter() - start
    return (after - before) / elapsed


def sampled(results: dict[str, Any]) -> float:
    """Environment steps since the beginning."""
    return float(results["env_runners"]["num_env_steps_sampled_lifetime"])


if __name__ == "__main__":
    main()
