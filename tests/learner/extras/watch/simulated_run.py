"""A run folder as a learner writes it, without a learner, with any number of env servers."""

import json
import math
import random
from dataclasses import asdict
from pathlib import Path
from typing import Any

from learner.report.status import (
    EnvServerStatus,
    EvaluationStatus,
    Slots,
    State,
    Status,
    write_status,
)

INTERVAL_SECONDS = 5.0
START = 1_790_000_000.0


class SimulatedRun:
    """Writes the files of a run in `folder`, whose time passes by `advance`."""

    def __init__(
        self,
        folder: Path,
        *,
        env_servers: int = 4,
        seed: int = 0,
        total_steps: int = 2_000_000,
        steps_per_second: float = 12_000.0,
        now: float = START,
    ):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.now = now
        self.started = now
        self.steps = 0
        self.state: State = "starting"
        self.reason = ""
        self._random = random.Random(seed)
        self._seed = seed
        self._total = total_steps
        self._rate = steps_per_second
        self._num = env_servers
        self._best: EvaluationStatus | None = None
        self._last: EvaluationStatus | None = None
        config = {
            "environment": {"type": "seedrl.config:EnvironmentConfig", "id": "CartPole-v1"},
            "agent": {"type": "seedrl.agents.r2d2:R2D2Config", "learning_rate": 0.003},
            "learning": {"total_steps": total_steps},
            "evaluation": {"target_return": 475.0},
            "seed": seed,
        }
        (folder / "config.json").write_text(json.dumps({"config": config}))
        self.say("started", f"serving on 127.0.0.1:8686, learning on 1 device; {folder.name}")
        for number in range(env_servers):
            name = self.name(number)
            self.say("joined", f"env server {name} joins with 32 environments", name=name)
        self.state = "training"

    @property
    def elapsed(self) -> float:
        """Seconds of the run."""
        return self.now - self.started

    def name(self, number: int) -> str:
        """Of an env server."""
        return f"host{number // 8:02d}:{4000 + number}"

    def skill(self) -> float:
        """The return that the policy reaches by now."""
        return 500 / (1 + math.exp(-9 * (self.steps / self._total - 0.42)))

    def advance(self, seconds: float) -> None:
        """Lets time pass; writes a line of metrics, a round now and then, and the status."""
        self.now += seconds
        self.steps = min(self._total, self.steps + int(seconds * self._rate))
        self.write_metrics()
        if self._random.random() < 0.5:
            self.evaluate()
        self.write_status()

    def evaluate(self) -> None:
        """Writes a round of evaluation."""
        mean = min(500.0, max(9.0, self.skill() + self._random.gauss(0, 18)))
        self._last = EvaluationStatus(
            mean_return=mean, episodes=20, env_steps=self.steps, updates=self.steps // 80
        )
        if self._best is None or mean > self._best.mean_return:
            self._best = self._last
        self._append("metrics.jsonl", {"kind": "evaluation", **asdict(self._last)})
        self.say("evaluation", f"evaluation {mean:.1f} over 20 episodes", mean_return=mean)

    def write_metrics(self) -> None:
        """Writes a line of kind `metrics`."""
        noise, rows = self._random.gauss, self.steps + self._num * 32
        values = {
            "kind": "metrics",
            "env_steps": float(self.steps),
            "updates": self.steps / 80,
            "env_steps_per_second": self._rate * (1 + noise(0, 0.03)),
            "replay_ratio": 4 + noise(0, 0.02),
            "return/training": max(9.0, self.skill() * 0.9 + noise(0, 22)),
            "policy_lag_updates": 330 + noise(0, 12),
            "loss": abs(3 * math.exp(-self.steps / self._total) + noise(0, 0.1)),
            "q_mean": 4 + self.skill() / 100,
            "ledger/sent": float(rows),
            "ledger/seen": float(rows),
            "ledger/received": float(rows),
            "ledger/accepted": float(rows),
            "ledger/queued": 132.0,
            "ledger/answered": rows - 132.0,
            "ledger/evaluation": rows // 3,
            "ledger/partial": 48.0,
            "ledger/completed": rows - 180.0 - rows // 3,
            "ledger/stored": rows - 180.0 - rows // 3 - 640,
        }
        self._append("metrics.jsonl", values)

    def env_server(self, number: int) -> EnvServerStatus:
        """The status of one."""
        hung, left, fails = number % 41 == 7, number % 47 == 11, number % 29 == 5
        return EnvServerStatus(
            name=self.name(number),
            host=self.name(number).split(":")[0],
            state="hung" if hung else "left" if left else "live",
            since_seconds=self.started + (self.elapsed * 0.7 if hung or left else 0),
            groups=3,
            environments=32,
            training_slots=31,
            evaluation_slots=1,
            steps_per_second=0 if hung or left else self._rate / self._num,
            failures=3 if fails else 0,
            last_failure="RuntimeError: the simulator lost its <b>licence</b>" if fails else "",
            waiting_seconds=self.elapsed * 0.3 if hung else 0.002,
            hung_groups=(1,) if hung else (),
            left_because="its connection was lost" if left else "",
        )

    def write_status(self) -> None:
        """Replaces `status.json`."""
        servers = tuple(self.env_server(number) for number in range(self._num))
        there = [server for server in servers if server.state != "left"]
        hung = sum(31 for server in servers if server.state == "hung")
        status = Status(
            time_seconds=self.now,
            state=self.state,
            reason=self.reason,
            config="cartpole_r2d2",
            pid=4199,
            address="127.0.0.1:8686",
            started_seconds=self.started,
            elapsed_seconds=self.elapsed,
            env_steps=self.steps,
            total_steps=self._total,
            updates=self.steps // 80,
            target_return=475.0,
            last_evaluation=self._last,
            best_evaluation=self._best,
            env_steps_per_second=self._rate,
            updates_per_second=self._rate / 80,
            waiting_for="learning waits for acting",
            training_slots=Slots(
                total=self._num * 31, live=31 * len(there), waiting=hung, hung=hung
            ),
            evaluation_slots=Slots(total=self._num, live=len(there)),
            env_servers=servers,
            metrics={"return/training": self.skill() * 0.9, "replay_ratio": 4.0},
        )
        write_status(self.folder, status)

    def finish(self) -> None:
        """Ends the run."""
        self.state, self.reason = "finished", "the target return of 475 was confirmed"
        self.say("ended", f"the run is over: {self.reason}", reason=self.reason)
        self.write_status()

    def say(self, kind: str, text: str, is_problem: bool = False, **about: Any) -> None:
        """Writes an event."""
        event = {
            "time_seconds": self.now,
            "env_steps": self.steps,
            "kind": kind,
            "is_problem": is_problem,
            "text": text,
            "fields": about,
        }
        self._append("events.jsonl", event)

    def _append(self, name: str, values: dict[str, Any]) -> None:
        line = {"time_seconds": self.now, "elapsed_seconds": self.elapsed, **values}
        with (self.folder / name).open("a") as file:
            file.write(json.dumps(line) + "\n")
