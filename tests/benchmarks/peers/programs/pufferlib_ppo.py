"""PufferLib's PPO, PuffeRL, around its own vectorization of gymnasium's environments.

`ppo_commands.py` says what it is asked for.
"""

import ast
import configparser
import contextlib
import functools
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pufferlib
import pufferlib.emulation
import pufferlib.vector
import torch
from gymnasium.wrappers import AtariPreprocessing, FrameStack, TransformReward
from ppo_commands import Task, follow
from pufferlib import pufferl
from torch import nn
from torch_networks import make_networks

# On a machine with nvcc, which this looks for, but without a GPU.
pufferl.ADVANTAGE_CUDA = False
_NEVER = 10**12


def make_gymnasium_env(task: Task) -> gymnasium.Env:
    if not task["image_size"]:
        return gymnasium.make(task["environment"], disable_env_checker=True)
    import ale_py  # noqa: F401, it registers its games, which takes a second

    env = gymnasium.make(
        task["environment"], frameskip=1, repeat_action_probability=0.0, disable_env_checker=True
    )
    env = AtariPreprocessing(env, frame_skip=4, screen_size=task["image_size"])
    return FrameStack(env, task["frame_stack"])


def make_env(task: Task, buf: Any = None, seed: int = 0) -> pufferlib.emulation.GymnasiumPufferEnv:
    env = TransformReward(make_gymnasium_env(task), lambda reward: reward * task["reward_scale"])
    env = pufferlib.EpisodeStats(env)
    return pufferlib.emulation.GymnasiumPufferEnv(env=env, buf=buf)


class Policy(nn.Module):
    """What PuffeRL calls: observations -> logits and values."""

    def __init__(self, task: Task):
        super().__init__()
        self.torso, self.policy, self.value = make_networks(task)

    def forward(self, observations: torch.Tensor, state: Any = None) -> tuple[torch.Tensor, ...]:
        hidden = self.torso(observations)
        return self.policy(hidden), self.value(hidden)

    forward_eval = forward


class Quiet(pufferl.PuffeRL):
    """Draws no dashboard, four times a second."""

    def print_dashboard(self, *args: Any, **kwargs: Any) -> None:
        pass


def settings(task: Task) -> dict[str, Any]:
    """The library's own, with our hyperparameters."""
    parser = configparser.ConfigParser(inline_comment_prefixes="#")
    parser.read(Path(pufferlib.__file__).parent / "config" / "default.ini")
    defaults = {}
    for name, text in parser["train"].items():
        with contextlib.suppress(ValueError, SyntaxError):
            defaults[name] = ast.literal_eval(text)
    batch = task["sequences"] * task["rollout"]
    return {
        **defaults,
        "env": task["environment"],
        "precision": "float32",
        "compile_mode": "default",
        "use_rnn": False,
        "device": "cpu",
        "seed": task["seed"],
        "checkpoint_interval": _NEVER,
        "total_timesteps": _NEVER,
        "anneal_lr": False,
        # All environments fill a rollout, so that there are as many sequences at least.
        "batch_size": max(task["sequences"], task["num_envs"]) * task["rollout"],
        "bptt_horizon": task["rollout"],
        "minibatch_size": batch // task["minibatches"],
        "update_epochs": task["epochs"],
        "gamma": task["gamma"],
        "gae_lambda": task["gae_lambda"],
        "clip_coef": task["clip"],
        "ent_coef": task["entropy_cost"],
        "vf_coef": task["value_cost"],
        "max_grad_norm": task["max_gradient_norm"],
        "optimizer": "adam",
        "learning_rate": task["learning_rate"],
        "adam_beta1": 0.9,
        "adam_eps": task["adam_epsilon"],
        # What ours has not: values that are clipped, and minibatches drawn by their advantage.
        "vf_clip_coef": float("inf"),
        "prio_alpha": 0.0,
    }


class Training:
    """Owns the trainer, which owns its environments; used as `ppo_commands.Training`."""

    warm_up_steps = 2

    def __init__(self, task: Task):
        self._task = task
        torch.manual_seed(task["seed"])
        # Environments as cheap as these take less than a message to another process, and its
        # workers never sleep, so that on two cores they take the time of the learner.
        vecenv = pufferlib.vector.make(
            functools.partial(make_env, task),
            backend=pufferlib.vector.Serial,
            num_envs=task["num_envs"],
            seed=task["seed"],
        )
        self._policy = Policy(task)
        self._trainer = Quiet(settings(task), vecenv, self._policy)

    def step(self, *, learns: bool = True) -> int:
        before = self._trainer.global_step
        self._trainer.evaluate()
        if learns:
            self._trainer.train()
        return self._trainer.global_step - before

    def play(self, episodes: int) -> list[float]:
        made = [functools.partial(make_gymnasium_env, self._task)] * episodes
        envs = gymnasium.vector.SyncVectorEnv(made)
        observations, _ = envs.reset(seed=self._trainer.epoch)
        returns, playing = np.zeros(episodes), np.ones(episodes, bool)
        while playing.any():
            with torch.no_grad():
                logits, _ = self._policy(torch.as_tensor(observations))
            observations, rewards, ends, limits, _ = envs.step(logits.argmax(-1).numpy())
            returns += rewards * playing
            playing &= ~(ends | limits)
        envs.close()
        return returns.tolist()

    def paused(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()  # it collects in `step` only


if __name__ == "__main__":
    follow(Training)
