"""TorchRL's PPO behind its inference server, with asynchronous groups of environments.

Their fastest layout of those tried: a process for each group of environments, which asks a server
process for its actions and sends whole rollouts. Others cost as much CPU or more a step:
environments in threads, in two processes with shared memory, or each in a process of its own.

`ppo_commands.py` says what it is asked for.
"""

import functools
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import ale_py
import gymnasium
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation
from ppo_commands import Task, follow
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModule
from torch import nn
from torch_networks import make_networks
from torchrl.collectors import AsyncBatchedCollector
from torchrl.envs import ExplorationType, GymWrapper, set_exploration_type
from torchrl.modules import ActorValueOperator, ProbabilisticActor
from torchrl.modules.inference_server import InferenceServerConfig
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

_SERVER_TIMEOUT_SECONDS = 0.001


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


def make_operator(task: Task) -> ActorValueOperator:
    torso, policy, value = make_networks(task)
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
    return make_operator(task).get_policy_operator()


class Training:
    """Owns the collector with its processes, the networks and their optimizer."""

    def __init__(self, task: Task):
        self._task = task
        torch.manual_seed(task["seed"])
        networks = make_operator(task)
        self._policy = networks.get_policy_operator()
        critic = networks.get_value_operator()
        self._parameters = list(networks.parameters())
        self._advantage = GAE(gamma=task["gamma"], lmbda=task["gae_lambda"], value_network=critic)
        self._loss = ClipPPOLoss(
            self._policy,
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
        # Until the library's queue is as full as it will be: of two messages a group.
        self.warm_up_steps = 2 * task["num_envs"] // task["sequences"] + 1
        self._collector = AsyncBatchedCollector(
            [functools.partial(make_group, task)] * groups,
            policy_factory=functools.partial(make_policy, task),
            frames_per_batch=task["sequences"] * task["rollout"],
            env_backend="multiprocessing",
            transport="auto",
            transition_chunk_size=task["rollout"],
            # As in ours a batch waits for half of the environments, but not for long.
            server_config=InferenceServerConfig(
                max_batch_size=groups,
                min_batch_size=max(1, groups // 2),
                timeout=_SERVER_TIMEOUT_SECONDS,
            ),
        )
        self._collector.update_policy_weights_(self._policy)
        self._batches: Iterator[TensorDictBase] = iter(self._collector)

    def step(self, *, learns: bool = True) -> int:
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
        self._collector.update_policy_weights_(self._policy)

    def play(self, episodes: int) -> list[float]:
        group = make_group({**self._task, "group_size": episodes})
        with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
            state, playing = group.reset(), torch.ones(episodes, dtype=torch.bool)
            returns = torch.zeros(episodes)
            while playing.any():
                step, state = group.step_and_maybe_reset(self._policy(state))
                returns += step["next", "reward"].squeeze(-1) * playing
                playing &= ~step["next", "done"].squeeze(-1)
        group.close()
        return returns.tolist()

    def paused(self) -> AbstractContextManager[Any]:
        return self._collector.pause()


if __name__ == "__main__":
    follow(Training)
