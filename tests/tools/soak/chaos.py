"""Every fault that one machine can bring about, each a function of the world.

Not here: a host that dies.
"""

import contextlib
import os
import random
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import grpc

from seedrl.wire import channel
from seedrl.wire.contract import MAJOR, MINOR
from seedrl.wire.framing import ToLearner
from seedrl.wire.seedrl_pb2 import EnvSpec, FromEnvServer, Hello, Ready, Sent
from tests.tools.soak.faulty import FAULTS
from tests.tools.soak.world import World
from tests.typed_call import connect_method

Fault = Callable[[World, random.Random], None]


def kill_env_server(world: World, chooser: random.Random) -> None:
    """SIGKILL."""
    chooser.choice(world.env_servers).kill()


def end_env_server(world: World, chooser: random.Random) -> None:
    """SIGTERM, which nobody has asked it for."""
    chooser.choice(world.env_servers).terminate()


def freeze_env_server(world: World, chooser: random.Random) -> None:
    """SIGSTOP, for longer than it takes to be noticed."""
    _freeze(chooser.choice(world.env_servers).pid, chooser.uniform(1, 6))


def freeze_learner(world: World, chooser: random.Random) -> None:
    """The same of the learner."""
    _freeze(world.learner.pid, chooser.uniform(1, 5))


def kill_learner(world: World, chooser: random.Random) -> None:
    """SIGKILL."""
    world.learner.kill()


def damage_checkpoint(world: World, chooser: random.Random) -> None:
    """One bit of the newest checkpoint; then the learner is killed, and has to choose another."""
    folders = sorted((world.workdir / "checkpoints").glob("[0-9]" * 12))
    files = [path for folder in folders[1:][-1:] for path in folder.rglob("*") if _has_bytes(path)]
    if files:
        path = chooser.choice(sorted(files))
        with contextlib.suppress(OSError), path.open("r+b") as file:
            content = file.read()
            place = chooser.randrange(len(content))
            file.seek(place)
            file.write(bytes((content[place] ^ 1 << chooser.randrange(8),)))
    world.learner.kill()


def fill_disk(world: World, chooser: random.Random) -> None:
    """No file of the learner may grow beyond a few bytes, for a while."""
    pid = world.learner.pid
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (512, before[1]))
    time.sleep(chooser.uniform(2, 12))
    with contextlib.suppress(OSError):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


def cut_network(world: World, chooser: random.Random) -> None:
    """Nothing passes, for shorter or longer than it takes to be noticed."""
    world.proxy.cut()
    time.sleep(chooser.choice([0.1, 1.0, 5.0]))
    world.proxy.heal()


def reset_network(world: World, chooser: random.Random) -> None:
    """Connections end."""
    world.proxy.reset()


def silent_peers(world: World, chooser: random.Random) -> None:
    """Connections without a word, and without an end of their own for a while."""
    with contextlib.ExitStack() as stack:
        for _ in range(50):
            with contextlib.suppress(OSError):
                stack.enter_context(_connected(world))
        time.sleep(3)


def garbage(world: World, chooser: random.Random) -> None:
    """Connections that speak no HTTP/2, or begin to."""
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    for _ in range(50):
        noise = chooser.randbytes(chooser.randrange(2000))
        with contextlib.suppress(OSError), _connected(world) as connection:
            connection.sendall(chooser.choice([b"", preface]) + noise)


def greedy_peer(world: World, chooser: random.Random) -> None:
    """It wants all slots, and never gets ready."""
    _say(world, [_hello(num_envs=2**32 - 1)], 3.0)


def lying_peer(world: World, chooser: random.Random) -> None:
    """It reports what it never sent, under leases that it guesses."""
    false = [Sent(lease=chooser.getrandbits(64), steps=2**40, num_envs=8) for _ in range(5)]
    _say(world, [_hello(num_envs=1, sent=false)], 1.0)


def unknown_spec(world: World, chooser: random.Random) -> None:
    """It has built nothing that can be read."""
    _say(world, [_hello(num_envs=1), FromEnvServer(ready=Ready(spec=EnvSpec()))], 1.0)


def stranger(world: World, chooser: random.Random) -> None:
    """It has another token."""
    _say(world, [_hello(num_envs=1)], 1.0, token="0123456789abcdef")


def _environment(name: str) -> Fault:
    def ask(world: World, chooser: random.Random) -> None:
        (world.faults / name).touch()

    return ask


ALL: Mapping[str, Fault] = {
    **{
        fault.__name__: fault
        for fault in (
            *(kill_env_server, end_env_server, freeze_env_server, freeze_learner, kill_learner),
            *(damage_checkpoint, fill_disk, cut_network, reset_network, silent_peers, garbage),
            *(greedy_peer, lying_peer, unknown_spec, stranger),
        )
    },
    **{f"environment_{name}": _environment(name) for name in FAULTS},
}
# After them there is another process, of which nothing that was measured before can be said.
END_LEARNER = ("kill_learner", "damage_checkpoint")


def schedule(chooser: random.Random, names: list[str]) -> Iterator[str]:
    """Which fault comes next, without end: each once, in any order, again and again."""
    while True:
        yield from chooser.sample(names, len(names))


def _freeze(pid: int, seconds: float) -> None:
    os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)
    os.kill(pid, signal.SIGCONT)


def _has_bytes(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def _connected(world: World) -> socket.socket:
    return socket.create_connection(("127.0.0.1", world.port), timeout=2.0)


def _hello(num_envs: int, sent: list[Sent] | None = None) -> FromEnvServer:
    hello = Hello(major=MAJOR, minor=MINOR, num_envs=num_envs, num_groups=1, host="x", sent=sent)
    return FromEnvServer(hello=hello)


def _say(world: World, messages: list[ToLearner], seconds: float, token: str = "") -> None:
    """Says that, and waits for the stream's end or so long."""
    metadata = ((channel.TOKEN_KEY, f"Bearer {token or world.token}"),)
    is_over = threading.Event()

    def say() -> Iterator[ToLearner]:
        yield from messages
        is_over.wait(seconds)

    with channel.connect(f"127.0.0.1:{world.port}", max_message_bytes=2**20) as connection:
        call = connect_method(connection)(say(), timeout=seconds, metadata=metadata)
        with contextlib.suppress(grpc.RpcError):
            for _ in call:
                pass
        is_over.set()
