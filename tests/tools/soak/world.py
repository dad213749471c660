"""The run that is soaked: a learner, its env servers, and the proxy before some of them.

All are started by hand, and again whenever they end, as an operator's machines would.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

from tests.tools.soak.faulty import VARIABLE
from tests.tools.soak.proxy import Proxy

ROOT = Path(__file__).parents[3]
_ENVS_EACH = 8
# Of an env server, which takes a tenth of that.
_MOST_MIB = 700
_NUM_SERVERS = 4
# The second half of them is behind the proxy, and uses no link.
_BEFORE_PROXY = _NUM_SERVERS // 2
_LEARNER = (
    *("cartpole_r2d2", f"--serving.training-slots={_ENVS_EACH * _NUM_SERVERS - 4}"),
    *("--serving.evaluation-slots=4", "--evaluation.target-return=None", "--evaluation.episodes=8"),
    *("--learning.total-steps=1000000000", "--checkpoint.interval-seconds=10"),
    *("--environment.wrappers=tests.tools.soak.faulty:Faulty", "--logging.interval-seconds=1"),
    "--serving.step-deadline-seconds=10",
    *("--logging.no-learning-curve", "--resume=auto"),
)
# What nobody did is no crash loop if it takes longer than that.
_RESTART_SECONDS = 1.0


class World:
    """The processes. `tick` starts again what has ended.

    Attributes:
      workdir: of the run.
      faults: the folder that environments look into.
      restarts: how often each kind of process was started again, by its exit code.
      learner_starts: when the learner was started, in monotonic seconds.
    """

    def __init__(self, folder: Path) -> None:
        """Starts it all in an empty folder."""
        self.workdir, self.faults = folder / "run", folder / "faults"
        self.faults.mkdir(parents=True)
        (self.workdir / "logs").mkdir(parents=True)
        self._token = folder / "token"
        self._token.write_text(os.urandom(16).hex())
        self._token.chmod(0o600)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self.proxy = Proxy(self.port)
        self.restarts: Counter[str] = Counter()
        self.learner_starts: list[float] = []
        self._said = (folder / "learner.log").open("ab")
        self._next_start = [0.0] * (_NUM_SERVERS + 1)
        self.learner = self._start_learner()
        self.env_servers = [self._start_env_server(index) for index in range(_NUM_SERVERS)]

    @property
    def token(self) -> str:
        """What a peer must show."""
        return self._token.read_text()

    def tick(self) -> None:
        """Starts again what has ended."""
        now = time.monotonic()
        if (code := self.learner.poll()) is not None and now >= self._next_start[-1]:
            self.restarts[f"learner {code}"] += 1
            self._next_start[-1] = now + _RESTART_SECONDS
            self.learner = self._start_learner()
        for index, process in enumerate(self.env_servers):
            if (code := process.poll()) is not None and now >= self._next_start[index]:
                self.restarts[f"env server {code}"] += 1
                self._next_start[index] = now + _RESTART_SECONDS
                self.env_servers[index] = self._start_env_server(index)

    def finish(self, seconds: float) -> int | None:
        """SIGTERM to the learner; its exit code, None if it did not end in time."""
        self.proxy.heal()
        self.learner.send_signal(signal.SIGTERM)
        try:
            return self.learner.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def close(self) -> None:
        """Ends all processes."""
        for process in (self.learner, *self.env_servers):
            process.kill()
            process.wait()
        self._reader.join()
        self._said.close()

    def _start_learner(self) -> "subprocess.Popen[bytes]":
        self.learner_starts.append(time.monotonic())
        command = [sys.executable, "-m", "learner", *_LEARNER, "--workdir", str(self.workdir)]
        command += ["--bind", f"127.0.0.1:{self.port}", f"--serving.token-file={self._token}"]
        learner = subprocess.Popen(
            command,
            cwd=ROOT,
            env=self._variables(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        # Through a pipe: what it says of a full disk must not be lost to that disk.
        self._reader = threading.Thread(target=self._keep_what_is_said, args=(learner,))
        self._reader.start()
        return learner

    def _keep_what_is_said(self, learner: "subprocess.Popen[bytes]") -> None:
        assert learner.stdout is not None
        for line in learner.stdout:
            self._said.write(line)
            self._said.flush()

    def _start_env_server(self, index: int) -> "subprocess.Popen[bytes]":
        is_behind = index >= _BEFORE_PROXY
        address = self.proxy.address if is_behind else f"127.0.0.1:{self.port}"
        command = [sys.executable, "-m", "envs_server", "--learner", address]
        command += ["--num-envs", str(_ENVS_EACH), "--allow-env", "tests.tools.soak.faulty:Faulty"]
        command += ["--token-file", str(self._token)]
        command += ["--max-memory-mib", str(_MOST_MIB)]
        logs = self.workdir / "logs"
        command += ["--sent-log", str(logs / f"env_server_{index}.sent")]
        command += ["--no-local-link"] * is_behind
        with (logs / f"env_server_{index}.log").open("ab") as said:
            return subprocess.Popen(
                command, cwd=ROOT, env=self._variables(), stdout=said, stderr=said
            )

    def _variables(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(ROOT), VARIABLE: str(self.faults)}
