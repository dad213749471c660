"""Nothing that a run writes, says or shows holds its token or the key of a lease."""

import contextlib
import signal
import socket
import urllib.request
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from seedrl.wire import contract, seedrl_pb2
from seedrl.wire.channel import LearnerConnection
from tests.patience import SECONDS
from tests.system import processes
from tests.system.processes import TINY, UNHURRIED, Program, Programs

pytestmark = pytest.mark.gate

_TOKEN = "canary-token-7a1f3c5e9b2d4f60"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _served_address(learner: Program) -> str:
    for line in learner.stderr.splitlines():
        if ", serving " in line:
            return line.split(", serving ")[1].split(",")[0]
    return ""


def _peer(address: str, token: str, *bad: seedrl_pb2.FromEnvServer) -> tuple[str, int]:
    """What a peer is told at its end, and the key of the lease that it was given before."""
    key = 0
    with LearnerConnection(address, local_link=False, token=token) as connection:
        hello = seedrl_pb2.Hello(major=contract.MAJOR, num_envs=1, host="h", pid=7)
        for message in (seedrl_pb2.FromEnvServer(hello=hello), *bad):
            connection.put(message)
        with pytest.raises(grpc.RpcError) as failure:
            for message in connection.messages():
                if isinstance(message, seedrl_pb2.FromLearner):
                    key = message.assign.lease
    return f"{failure.value.code()} {failure.value.details()} {failure.value}", key


def _shown(pid: int) -> bytes:
    """What any user sees of a process, and what only its own does."""
    return b"".join(Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ"))


def test_no_output_of_a_run_holds_its_token_or_the_key_of_a_lease(
    programs: Programs, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    file, workdir, health = tmp_path / "secret", tmp_path / "run", f"127.0.0.1:{_free_port()}"
    file.write_text(f"{_TOKEN}\n")
    file.chmod(0o600)
    flags = ("--bind", "127.0.0.1:0", "--token-file", file, "--logging.health-bind", health)
    words = ("cartpole_r2d2", "--workdir", workdir, *TINY, *UNHURRIED, *flags)
    learner = programs("learner", *words)
    address = processes.wait_for(lambda: _served_address(learner), learner)
    joins = ("envs_server", "--learner", address, "--num-envs", 4, "--allow-env", "tests.*")
    env_server = programs(*joins, "--token-file", file)
    processes.wait_for(lambda: processes.records(workdir), learner)

    broken = seedrl_pb2.FromEnvServer(ready=seedrl_pb2.Ready())
    told = [_peer(address, token)[0] for token in ("", "wrong", f"{_TOKEN}x")]
    last, key = _peer(address, _TOKEN, broken)
    told.append(last)
    assert key
    unauthenticated = [text for text in told if "UNAUTHENTICATED" in text]
    assert len(unauthenticated) == 3
    page = urllib.request.urlopen(f"http://{health}/metrics", timeout=SECONDS).read()
    events = workdir / "events.jsonl"
    processes.wait_for(lambda: "server_refused" in events.read_text(), learner)
    shown = [_shown(program.pid) for program in (learner, env_server)]
    learner.signal(signal.SIGINT)
    assert learner.end() == 0
    with contextlib.suppress(OSError):
        env_server.signal(signal.SIGINT)
    env_server.end()

    outputs = {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    del outputs[str(file)]
    assert any("checkpoints" in name for name in outputs) and str(learner.stderr_path) in outputs
    outputs["statuses"] = " ".join(told).encode()
    outputs["page"], outputs["proc"] = page, b"".join(shown)
    secrets = [_TOKEN.encode(), str(key).encode(), f"{key:x}".encode(), key.to_bytes(8, "little")]
    hits = [
        (name, secret) for name, data in outputs.items() for secret in secrets if secret in data
    ]
    record_property("secrets_outputs", len(outputs))
    record_property("secrets_hits", len(hits))
    assert hits == []
