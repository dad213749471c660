"""Actors of the broadcast arm: processes with environments, and parameters to act with."""

import contextlib
import multiprocessing
import os
import time
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import grpc
import jax
import numpy as np

from envs_server.build import build, read_recipe
from envs_server.groups import EnvGroup
from envs_server.spaces import to_own_actions
from learner.acting.act_step import example_page
from seedrl.types import Page, StoredStep, TimeStep, Tree
from seedrl.wire.seedrl_pb2 import Environment
from tests.benchmarks.broadcast.workload import (
    GROUP_ENVS,
    NUM_ENVS,
    NUM_GROUPS,
    NUM_SERVERS,
    PAGE_STEPS,
    config_of,
    spec_of,
)

Result = TypeVar("Result")

EXCHANGE = "/seedrl.benchmarks.Rollouts/Exchange"
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
# A request is a page and the actor's numbers, [2] int64: its own, and its parameters' version. An
# answer is empty, or newer parameters and their version, [1] int64, or the end of the play.
END = b"."


def packed(*trees: Tree) -> bytes:
    """The leaves one after another."""
    leaves = map(np.asarray, jax.tree.leaves(trees))
    return b"".join([leaf.reshape(-1).view(np.uint8).data for leaf in leaves])


def unpacked(data: bytes, like: Tree) -> Tree:
    """Views of what was packed; `like` has its shapes and dtypes."""
    leaves, structure = jax.tree.flatten(like)
    offset = 0
    for index, leaf in enumerate(leaves):
        found = np.frombuffer(data, leaf.dtype, int(np.prod(leaf.shape)), offset)
        leaves[index] = found.reshape(leaf.shape)
        offset += found.nbytes
    return jax.tree.unflatten(structure, leaves)


class Actor:
    """Owns environments, parameters and one open page for each environment.

    Attributes:
      numbers: `[2] int64`, its own and the version of its parameters.
      page: leaves `[N, K, ...]`.
    """

    def __init__(self, number: int, width: int, num_bytes: int, folder: Path) -> None:
        config, spec = config_of(width, num_bytes, folder), spec_of(num_bytes)
        agent = config.agent.build(spec)
        self.numbers = np.array([number, 0])
        shapes = example_page(agent, spec, PAGE_STEPS)
        self.page: Page = jax.tree.map(lambda x: np.zeros((NUM_ENVS, *x.shape), x.dtype), shapes)
        self._params = jax.jit(agent.init)(jax.random.PRNGKey(0))
        self._carry = agent.initial_carry(NUM_ENVS)
        self._act = jax.jit(agent.act)
        recipe = read_recipe(
            Environment(id=config.environment.id, arguments=config.environment.arguments), ("*",)
        )
        environments = [build(recipe, "native", GROUP_ENVS) for _ in range(NUM_GROUPS)]
        self._to_own = to_own_actions(environments[0].action_space)
        seeds = range(GROUP_ENVS)
        self._groups = [EnvGroup(index, each, seeds) for index, each in enumerate(environments)]
        self._seen = [group.reset() for group in self._groups]
        self._count = 0
        self.fill()  # compiles

    def fill(self) -> None:
        """Acts and steps until its pages are full."""
        self.page.carry.previous_action[:] = self._carry.previous_action
        ones = np.ones(NUM_ENVS, np.float32)
        for position in range(PAGE_STEPS):
            timestep: TimeStep = jax.tree.map(lambda *leaves: np.concatenate(leaves), *self._seen)
            self._count += 1
            key = np.array([self.numbers[0], self._count], np.uint32)
            output = self._act(self._params, self._carry, timestep, ones, key)
            self._carry = output.carry
            action = np.asarray(output.action)
            for index, group in enumerate(self._groups):
                own = action[index * GROUP_ENVS : (index + 1) * GROUP_ENVS]
                self._seen[index] = group.advance(self._to_own(own))
            version = np.full(NUM_ENVS, self.numbers[1], np.int32)
            step = StoredStep(timestep, action, version, output.extras)
            stored = zip(jax.tree.leaves(self.page.steps), jax.tree.leaves(step), strict=True)
            for pages, rows in stored:
                pages[:, position] = rows

    def send(self, exchange: Callable[[bytes], bytes]) -> bool:
        """Sends its pages and takes parameters if there are newer ones; False at the end."""
        answer = exchange(packed(self.numbers, self.page))
        if answer not in (b"", END):
            params, version = unpacked(answer, (self._params, self.numbers[1:]))
            self._params = jax.block_until_ready(jax.device_put(params))
            self.numbers[1:] = version
        return answer != END


def play(seconds: float, address: str, acts: bool) -> tuple[int, float]:
    """Time steps of a while, and processor seconds.

    With `address` each rollout is sent to the learner, which may end the play. Without `acts` the
    same pages are sent again, and each answer has parameters, as in a run.
    """
    (actor,), start, spent, steps = _own, time.monotonic(), time.process_time(), 0
    with grpc.insecure_channel(address or "unix:/unused", OPTIONS) as channel:
        exchange: Any = channel.unary_unary(EXCHANGE)
        while time.monotonic() - start < seconds:
            if acts:
                actor.fill()
            else:
                actor.numbers[1] = -1
            steps += NUM_ENVS * PAGE_STEPS
            if address and not actor.send(exchange):
                break
    return steps, time.process_time() - spent


_own: list[Actor] = []  # the actor of this process


def _make(*arguments: Any) -> None:
    _own[:] = [Actor(*arguments)]


def _use_one_thread() -> None:
    # As on a machine with a core for each actor. Before jax starts.
    os.environ["XLA_FLAGS"] = (
        os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false"
    )
    os.environ["JAX_PLATFORMS"] = "cpu"


class Actors:
    """Owns the actors' processes."""

    def __init__(self) -> None:
        with contextlib.ExitStack() as stack:
            self._pools = [
                stack.enter_context(
                    ProcessPoolExecutor(
                        1, multiprocessing.get_context("spawn"), initializer=_use_one_thread
                    )
                )
                for _ in range(NUM_SERVERS)
            ]
            self.pids = [each.result() for each in self._each(os.getpid)]
            self._stack = stack.pop_all()

    def __enter__(self) -> "Actors":
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def make(self, width: int, num_bytes: int, folder: Path) -> None:
        """Builds environments and network of each, and compiles."""
        pools = enumerate(self._pools)
        made = [pool.submit(_make, number, width, num_bytes, folder) for number, pool in pools]
        for each in made:
            each.result()

    def play(self, seconds: float, address: str = "", acts: bool = True) -> "list[Future[Any]]":
        """See the function of this name."""
        return self._each(play, seconds, address, acts)

    def _each(self, work: Callable[..., Result], *arguments: Any) -> "list[Future[Result]]":
        return [pool.submit(work, *arguments) for pool in self._pools]
