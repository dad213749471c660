"""TorchRL's PPO behind its inference server, with asynchronous groups of environments.

The first command describes the task (`ppo.py`, one folder up). If its `mode` is `acting` or
`learning`, `{"seconds": s}` is answered with `{"rate": r}`, environment steps a second that are
collected, or learned from too. If it is `target`, `{"target": t, ...}` is answered with
`{"lines": [...]}`: training to a mean return of `t`, each line a round of evaluation, in
environments of its own while collecting is paused, and its time does not count.
"""

import functools
import itertools
import time
from collections.abc import Iterator
from statistics import fmean
from typing import Any

import ale_py
import gymnasium
import torch
from answering import commands
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.collectors import AsyncBatchedCollector
from torchrl.envs import ExplorationType, GymWrapper, set_exploration_type
from torchrl.modules import ActorValueOperator, ProbabilisticActor
from torchrl.modules.inference_server import InferenceServerConfig
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

_FRESH_EPISODES = 100
_SERVER_TIMEOUT_SECONDS = 0.001
Task = dict[str, Any]


def make_env(task: Task) -> gymnasium.Env:
    if not task["image_size"]:
        return gymnasium.make(task["environment"])
    gymnasium.register_envs(ale_py)
    env = gymnasium.make(task["environment"], frameskip=1, repeat_action_probability=0.0)
    env = AtariPreprocessing(env, frame_skip=4, screen_size=task["image_size"])
    return FrameStackObservation(env, task["frame_stack"])


def make_group(task: Task) -> GymWrapper:
    """Environments that a process steps one after another, and whose steps are one request."""
    made = [functools.partial(make_env, task)] * task["group_size"]
    group = SyncVectorEnv(made, autoreset_mode=AutoresetMode.SAME_STEP)
    return GymWrapper(group, categorical_action_encoding=True)


class Nature(nn.Module):
    """The convolutions of DQN: `[..., 4, 42, 42] uint8` -> `[..., D]`, any number of dimensions."""

    def __init__(self, frames: int):
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs, kernel, stride in ((frames, 32, 8, 4), (32, 64, 4, 2), (64, 64, 3, 1)):
            layers += [nn.Conv2d(inputs, outputs, kernel, stride), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Flatten())

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        flat = images.reshape(-1, *images.shape[-3:]).float() / 255
        return self.layers(flat).reshape(*images.shape[:-3], -1)


def make_networks(task: Task) -> ActorValueOperator:
    """A torso, and hidden layers of the policy and, apart from them, of the value."""

    def mlp(inputs: int, sizes: list[int], outputs: int | None = None) -> nn.Sequential:
        pairs = itertools.pairwise([inputs, *sizes])
        layers = [layer for pair in pairs for layer in (nn.Linear(*pair), nn.ReLU())]
        last = [] if outputs is None else [nn.Linear([inputs, *sizes][-1], outputs)]
        return nn.Sequential(*layers, *last)

    encoder = Nature(task["frame_stack"]) if task["image_size"] else nn.Identity()
    torso = nn.Sequential(encoder, mlp(task["features"], task["torso_sizes"]))
    size = [task["features"], *task["torso_sizes"]][-1]
    policy = mlp(size, task["head_sizes"], task["num_actions"])
    value = mlp(size, task["head_sizes"], 1)
    return ActorValueOperator(
        TensorDictModule(torso, ["observation"], ["hidden"]),
        ProbabilisticActor(
            TensorDictModule(policy, ["hidden"], ["logits"]),
            in_keys=["logits"],
            distribution_class=torch.distributions.Categorical,
            return_log_prob=True,
        ),
        TensorDictModule(value, ["hidden"], ["state_value"]),
    )


def make_policy(task: Task) -> Any:
    """What the inference server computes."""
    return make_networks(task).get_policy_operator()


class Training:
    """Owns the collector with its processes, the networks and their optimizer."""

    def __init__(self, task: Task):
        self._task = task
        torch.manual_seed(task["seed"])
        networks = make_networks(task)
        self.policy = networks.get_policy_operator()
        critic = networks.get_value_operator()
        self._parameters = list(networks.parameters())
        self._advantage = GAE(gamma=task["gamma"], lmbda=task["gae_lambda"], value_network=critic)
        self._loss = ClipPPOLoss(
            self.policy,
            critic,
            clip_epsilon=task["clip"],
            entropy_coeff=task["entropy_cost"],
            critic_coeff=task["value_cost"] / 2,
            loss_critic_type="l2",
            normalize_advantage=True,
        )
        self._optimizer = torch.optim.Adam(
            self._parameters, task["learning_rate"], eps=task["adam_epsilon"]
        )
        groups = task["num_envs"] // task["group_size"]
        self.collector = AsyncBatchedCollector(
            [functools.partial(make_group, task)] * groups,
            policy_factory=functools.partial(make_policy, task),
            frames_per_batch=task["sequences"] * task["rollout"],
            env_backend="multiprocessing",
            transport="auto",
            transition_chunk_size=task["rollout"],
            # As in ours a batch waits for half of the environments, but not for long.
            server_config=InferenceServerConfig(
                max_batch_size=groups,
                min_batch_size=groups // 2,
                timeout=_SERVER_TIMEOUT_SECONDS,
            ),
        )
        self.collector.update_policy_weights_(self.policy)
        self._batches: Iterator[TensorDictBase] = iter(self.collector)

    def step(self, *, learns: bool = True) -> int:
        """Takes a batch, and learns from it; its number of environment steps."""
        batch = next(self._batches)
        if learns:
            self._learn(batch)
        return batch.numel()

    def _learn(self, batch: TensorDictBase) -> None:
        task = self._task
        # `[N T, E]` of groups of E environments -> `[N E, T]`, consecutive steps of one each.
        data = batch.reshape(-1, task["rollout"], task["group_size"]).permute(0, 2, 1)
        data = data.reshape(-1, task["rollout"])
        reward = data["next", "reward"] * task["reward_scale"]
        limit = task["reward_clip"] or float("inf")
        data["next", "reward"] = reward.clamp(-limit, limit)
        with torch.no_grad():
            data = self._advantage(data).reshape(-1)
        for _ in range(task["epochs"]):
            for chosen in torch.randperm(len(data)).chunk(task["minibatches"]):
                losses = self._loss(data[chosen])
                total = losses["loss_objective"] + losses["loss_critic"] + losses["loss_entropy"]
                self._optimizer.zero_grad()
                total.backward()
                nn.utils.clip_grad_norm_(self._parameters, task["max_gradient_norm"])
                self._optimizer.step()
        self.collector.update_policy_weights_(self.policy)


def rate(training: Training, seconds: float, *, learns: bool) -> float:
    training.step(learns=learns)  # up to the end of a batch
    steps, elapsed, start = 0, 0.0, time.perf_counter()
    while elapsed < seconds:
        steps += training.step(learns=learns)
        elapsed = time.perf_counter() - start
    return steps / elapsed


def play(task: Task, policy: Any, episodes: int) -> list[float]:
    """The return of an episode of each of that many environments, with the likeliest actions."""
    group = make_group({**task, "group_size": episodes})
    with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
        state, playing = group.reset(), torch.ones(episodes, dtype=torch.bool)
        returns = torch.zeros(episodes)
        while playing.any():
            step, state = group.step_and_maybe_reset(policy(state))
            returns += step["next", "reward"].squeeze(-1) * playing
            playing &= ~step["next", "done"].squeeze(-1)
    group.close()
    return returns.tolist()


def train_to(training: Training, task: Task, command: dict[str, Any]) -> list[dict[str, Any]]:
    """Rounds of evaluation, up to one of fresh episodes that confirms the target."""
    lines: list[dict[str, Any]] = []
    steps, next_steps, excluded = 0, 0, 0.0

    def evaluate(episodes: int, elapsed: float, *, is_confirmation: bool) -> bool:
        mean = fmean(play(task, training.policy, episodes))
        line = {"kind": "evaluation", "mean_return": mean, "is_confirmation": is_confirmation}
        lines.append({**line, "env_steps": steps, "elapsed_seconds": elapsed})
        return mean >= command["target"]

    while steps < command["most_steps"]:
        steps += training.step()
        if steps < next_steps:
            continue
        next_steps = steps + command["round_steps"]
        start = time.time()
        elapsed = start - task["started"] - excluded
        with training.collector.pause():
            if evaluate(command["episodes"], elapsed, is_confirmation=False) and evaluate(
                _FRESH_EPISODES, elapsed, is_confirmation=True
            ):
                break
        excluded += time.time() - start
    return lines


def main() -> None:
    lines = commands()
    task, answer = next(lines)
    training = Training(task)
    learns = task["mode"] == "learning"
    if task["mode"] != "target":
        # Until the library's queue is as full as it will be: of two messages a group.
        ahead = 2 * task["num_envs"] // task["sequences"]
        for _ in range(ahead + 1):
            training.step(learns=learns)
    answer(ready=True)
    for command, answer in lines:
        if task["mode"] == "target":
            answer(lines=train_to(training, task, command))
        else:
            answer(rate=rate(training, command["seconds"], learns=learns))


if __name__ == "__main__":
    main()
