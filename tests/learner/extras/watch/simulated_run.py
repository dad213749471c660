"""A run directory as a learner writes it, without a learner, with any number of env servers."""

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

START = 1_790_000_000.0
TOTAL_STEPS = 2_000_000


class SimulatedRun:
    """Writes the files of a run in `folder`, whose time passes by `advance`."""

    def __init__(
        self,
        folder: Path,
        *,
        env_servers: int = 4,
        seed: int = 0,
        steps_per_second: float = 12_000.0,
        now: float = START,
    ):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.now = self.started = now
        self.steps = 0
        self.state: State = "training"
        self.reason = ""
        self._random = random.Random(seed)
        self._rate, self._num = steps_per_second, env_servers
        self._best: EvaluationStatus | None = None
        self._last: EvaluationStatus | None = None
        config = {
            "environment": {"type": "seedrl.config:EnvironmentConfig", "id": "CartPole-v1"},
            "agent": {"type": "seedrl.agents.r2d2:R2D2Config", "learning_rate": 0.003},
            "learning": {"total_steps": TOTAL_STEPS},
            "evaluation": {"target_return": 475.0},
            "seed": seed,
        }
        (folder / "config.json").write_text(json.dumps({"config": config}))
        self.say("started", f"serving on 127.0.0.1:8686, learning on 1 device; {folder.name}")

    def name(self, number: int) -> str:
        """Of an env server."""
        return f"host{number // 8:02d}:{4000 + number}"

    def advance(self, seconds: float) -> None:
        """Lets time pass; writes a line of metrics, a round now and then, and the status."""
        self.now += seconds
        self.steps = min(TOTAL_STEPS, self.steps + int(seconds * self._rate))
        skill = 500 / (1 + math.exp(-9 * (self.steps / TOTAL_STEPS - 0.42)))
        self._write_metrics(skill)
        if self._random.random() < 0.5:
            mean = min(500.0, max(9.0, skill + self._random.gauss(0, 18)))
            self._last = EvaluationStatus(
                mean_return=mean,
                episodes=20,
                env_steps=self.steps,
                ended_env_steps=self.steps,
                updates=self.steps // 80,
            )
            if self._best is None or mean > self._best.mean_return:
                self._best = self._last
            self._append("metrics.jsonl", {"kind": "evaluation", **asdict(self._last)})
        self.write_status()

    def _write_metrics(self, skill: float) -> None:
        noise, rows = self._random.gauss, self.steps + self._num * 32
        stored = rows - 180.0 - rows // 3
        values = {
            "kind": "metrics",
            "env_steps": float(self.steps),
            "updates": self.steps / 80,
            "env_steps_per_second": self._rate * (1 + noise(0, 0.03)),
            "replay_ratio": 4 + noise(0, 0.02),
            "return/training": max(9.0, skill * 0.9 + noise(0, 22)),
            "policy_lag_updates": 330 + noise(0, 12),
            "acting_environment_share": 0.6,
            "acting_act_share": 0.25,
            "acting_waits_share": 0.1,
            "learning_learn_share": 1.0,
            "learning_waits_share": 0.0,
            "loss": abs(3 * math.exp(-self.steps / TOTAL_STEPS) + noise(0, 0.1)),
            "q_mean": 4 + skill / 100,
            **dict.fromkeys(("ledger/sent", "ledger/seen", "ledger/received"), float(rows)),
            "ledger/accepted": float(rows),
            "ledger/queued": 132.0,
            "ledger/answered": rows - 132.0,
            "ledger/evaluation": rows // 3,
            "ledger/partial": 48.0,
            "ledger/completed": stored,
            "ledger/stored": stored - 640,
        }
        self._append("metrics.jsonl", values)

    def env_server(self, number: int) -> EnvServerStatus:
        """The status of one."""
        hung, left, fails = number % 41 == 7, number % 47 == 11, number % 29 == 5
        return EnvServerStatus(
            name=self.name(number),
            host=self.name(number).split(":")[0],
            state="hung" if hung else "left" if left else "live",
            since_seconds=self.started,
            groups=3,
            environments=32,
            training_slots=31,
            evaluation_slots=1,
            steps_per_second=0 if hung or left else self._rate / self._num,
            failures=3 if fails else 0,
            last_failure="RuntimeError: the simulator lost its <b>licence</b>" if fails else "",
            waiting_seconds=(self.now - self.started) * 0.3 if hung else 0.002,
            hung_groups=(1,) if hung else (),
            left_because="its connection was lost" if left else "",
        )

    def write_status(self) -> None:
        """Replaces `status.json`."""
        servers = tuple(self.env_server(number) for number in range(self._num))
        present = sum(server.state != "left" for server in servers)
        hung = sum(31 for server in servers if server.state == "hung")
        training = Slots(total=self._num * 31, live=31 * present, waiting=hung, hung=hung)
        status = Status(
            time_seconds=self.now,
            state=self.state,
            reason=self.reason,
            config="cartpole_r2d2",
            pid=4199,
            address="127.0.0.1:8686",
            started_seconds=self.started,
            elapsed_seconds=self.now - self.started,
            env_steps=self.steps,
            total_steps=TOTAL_STEPS,
            updates=self.steps // 80,
            target_return=475.0,
            last_evaluation=self._last,
            best_evaluation=self._best,
            env_steps_per_second=self._rate,
            updates_per_second=self._rate / 80,
            training_slots=training,
            evaluation_slots=Slots(total=self._num, live=present),
            env_servers=servers,
            metrics={"return/training": 400.0, "replay_ratio": 4.0},
        )
        write_status(self.folder, status)

    def finish(self) -> None:
        """Ends the run."""
        self.state, self.reason = "finished", "the target return of 475 was confirmed"
        self.write_status()

    def say(self, kind: str, text: str, is_problem: bool = False) -> None:
        """Writes an event."""
        event = {"env_steps": self.steps, "kind": kind, "is_problem": is_problem, "text": text}
        self._append("events.jsonl", {**event, "fields": {}})

    def _append(self, name: str, values: dict[str, Any]) -> None:
        times = {"time_seconds": self.now, "elapsed_seconds": self.now - self.started}
        with (self.folder / name).open("a") as file:
            file.write(json.dumps({**times, **values}) + "\n")
