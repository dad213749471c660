"""Wire: the service, with nobody behind it who thinks, against a bare echo of the same messages."""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from learner.extras.bench.echo import EchoServer
from learner.extras.bench.measuring import Pace, Result, growth, interleave, rate, spread
from learner.extras.bench.system import ANY_PORT, serve_fleet
from learner.processes.env_servers import Child, child_environment, socket_address
from learner.serving.hub import Hub
from seedrl.agents.r2d2 import R2D2Config
from seedrl.config import Config, EnvironmentConfig, LaunchConfig, LearningConfig
from seedrl.timing import POLL_SECONDS, WARNING_SECONDS
from seedrl.wire.framing import (
    ActionsPayload,
    StepPayload,
    encode_from_env_server,
    encode_from_learner,
)
from seedrl.wire.learner_payload import pack_actions
from seedrl.wire.payload import StepLayout


class Messages(NamedTuple):
    """What crosses the wire: each message holds one observation of `shape` of `num_envs`."""

    num_envs: int
    shape: tuple[int, ...]
    dtype: str
    target: float


_MESSAGES = (
    Messages(23, (4,), "float32", 0.6),
    Messages(8, (84, 84), "uint8", 0.8),
    Messages(64, (84, 84), "uint8", 0.8),
)
_ENV_SERVERS = 2
_GROUPS = 2


def run(pace: Pace) -> Iterator[Result]:
    """About 600 bytes, 55 KiB and 441 KiB a message; two env servers of two groups each.

    As on one host, over links and an echo over a Unix socket, and as between hosts, over gRPC on
    TCP.
    """
    for over_tcp in (False, True):
        for messages in _MESSAGES:
            yield _result(messages, pace, over_tcp=over_tcp)


def _result(messages: Messages, pace: Pace, *, over_tcp: bool) -> Result:
    with contextlib.ExitStack() as stack:
        fleet = config(messages, env_servers=_ENV_SERVERS, local_link=not over_tcp)
        served = stack.enter_context(serve_fleet(fleet, over_tcp=over_tcp))
        assert served.hub.spec is not None
        layout = StepLayout(served.hub.spec, messages.num_envs)
        step_bytes = len(encode_from_env_server(StepPayload(bytes(layout.num_bytes))))
        actions = pack_actions(0, 0, np.zeros(messages.num_envs, np.int32))
        answer_bytes = len(encode_from_learner(ActionsPayload(actions)))
        address = ANY_PORT if over_tcp else stack.enter_context(socket_address())
        echo = EchoServer(address, answer_bytes=answer_bytes, max_streams=_ENV_SERVERS)
        stack.callback(echo.stop)
        _start_clients(echo, step_bytes, stack)
        measures = {
            "service": lambda: _service_rate(served.hub, pace.seconds),
            "echo": lambda: _echo_rate(echo, pace.seconds),
        }
        measured = interleave(measures, pace.rounds)
    service = spread(measured["service"]).median
    return Result(
        name=f"wire{' over TCP' if over_tcp else ''}: {step_bytes:,} bytes",
        unit="messages/s",
        limit_name="bare gRPC echo",
        ours=measured["service"],
        limits=measured["echo"],
        target=messages.target,
        conditions={
            "messages": f"{step_bytes:,} bytes each, answers of {answer_bytes}, over "
            + ("gRPC on TCP" if over_tcp else "links of one host"),
            "environments": f"{_ENV_SERVERS} env servers, {_GROUPS} steps in flight each",
            "network": "none: all actions are 0",
        },
        details={"MB/s": service * step_bytes / 1e6},
    )


def answer(hub: Hub) -> int:
    """Answers the steps that wait with zeros, which cost nothing; the number of their messages."""
    # What is measured is the way of the messages: nothing else is done with them.
    batch = hub.next_batch(["training"], timeout=POLL_SECONDS)
    if batch is None:
        return 0
    hub.answer(batch, np.zeros(len(batch.slots), np.int32))
    return len(batch.pending)


def _service_rate(hub: Hub, seconds: float) -> float:
    rate(lambda: answer(hub), POLL_SECONDS)  # until messages flow
    return rate(lambda: answer(hub), seconds)


def _echo_rate(echo: EchoServer, seconds: float) -> float:
    # Only now: while the service is measured, the echo's clients must rest.
    echo.is_open.set()
    time.sleep(POLL_SECONDS)  # until messages flow
    try:
        return growth(lambda: sum(echo.num_answered), seconds)
    finally:
        echo.is_open.clear()


def _start_clients(server: EchoServer, step_bytes: int, stack: contextlib.ExitStack) -> None:
    """Clients in processes of their own, as env servers are, until `stack` closes."""
    words = [sys.executable, "-P", "-m", "learner.extras.bench.echo", server.address]
    words += [str(step_bytes), str(_GROUPS)]
    for _ in range(_ENV_SERVERS):
        client = Child(words, child_environment(), output=subprocess.DEVNULL)
        stack.callback(client.end, 0.0)
    # Clients that cannot start must not hang the benchmark.
    deadline = time.monotonic() + WARNING_SECONDS
    while len(server.num_answered) < _ENV_SERVERS:
        if time.monotonic() > deadline:
            raise RuntimeError(f"expected {_ENV_SERVERS} clients, got {server.num_answered}")
        time.sleep(POLL_SECONDS)


def config(messages: Messages, *, env_servers: int, local_link: bool = True) -> Config:
    """Env servers that send these messages, each of two groups; nobody learns from them."""
    arguments = {"shape": messages.shape, "dtype": messages.dtype}
    return Config(
        environment=EnvironmentConfig(
            id="envs_server.envs.constant:make",
            arguments=json.dumps(arguments),
            vectorization="native",  # one call for all environments: stepping costs next to nothing
        ),
        agent=R2D2Config(burn_in=0, unroll=1, n_steps=1, stride=1),  # which is never built
        learning=LearningConfig(num_devices=1),  # of several, each would answer its own slots
        launch=LaunchConfig(
            env_servers=env_servers,
            envs_per_server=_GROUPS * messages.num_envs,
            groups=_GROUPS,
            local_link=local_link,
        ),
    )
