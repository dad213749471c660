"""The parts of our actor-critic networks, for peers that need them in torch."""

import itertools

import torch
from ppo_commands import Task
from torch import nn


class Nature(nn.Module):
    """The convolutions of DQN: `[..., 4, 44, 44] uint8` -> `[..., D]`, any number of dimensions."""

    def __init__(self, frames: int):
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs, kernel, stride in ((frames, 32, 8, 4), (32, 64, 4, 2), (64, 64, 3, 1)):
            layers += [nn.Conv2d(inputs, outputs, kernel, stride), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Flatten())

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        flat = images.reshape(-1, *images.shape[-3:]).float() / 255
        return self.layers(flat).reshape(*images.shape[:-3], -1)


def _mlp(inputs: int, sizes: list[int], outputs: int | None = None) -> nn.Sequential:
    pairs = itertools.pairwise([inputs, *sizes])
    layers = [layer for pair in pairs for layer in (nn.Linear(*pair), nn.ReLU())]
    last = [] if outputs is None else [nn.Linear([inputs, *sizes][-1], outputs)]
    return nn.Sequential(*layers, *last)


def make_networks(task: Task) -> tuple[nn.Module, nn.Module, nn.Module]:
    """A torso, and hidden layers of the policy and, apart from them, of the value."""
    encoder = Nature(task["frame_stack"]) if task["image_size"] else nn.Identity()
    torso = nn.Sequential(encoder, _mlp(task["features"], task["torso_sizes"]))
    size = [task["features"], *task["torso_sizes"]][-1]
    policy = _mlp(size, task["head_sizes"], task["num_actions"])
    return torso, policy, _mlp(size, task["head_sizes"], 1)
