"""Folders of runs as learners leave them, of few small files."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

NOW = 1_790_000_000.0


def write_run(
    folder: Path,
    returns: Sequence[float],
    *,
    seed: int = 0,
    config: str = "cartpole_r2d2",
    environment: str = "CartPole-v1",
    arguments: str = "{}",
    target: float | None = None,
    ratio: float = 4.0,
    final: float | None = None,
    confirmed: float | None = None,
) -> Path:
    """A finished run of 100 steps per round, which takes 2 seconds.

    Args:
      returns: of the rounds of evaluation.
      final: mean of 100 fresh episodes after it.
      confirmed: mean of a confirmation, 50 steps after the last round.
    """
    folder.mkdir(parents=True)
    steps = 100 * len(returns)
    tree = {
        "environment": {
            "type": "EnvironmentConfig",
            "id": environment,
            "arguments": arguments,
            "wrappers": [],
        },
        "replay": {"ratio": ratio},
        "serving": {"bind": f"unix:/tmp/{folder.name}", "token_file": f"/tmp/{folder.name}"},
        "learning": {"total_steps": 1000},
        "evaluation": {"target_return": target, "confirm_episodes": 100 if target else 0},
        "seed": seed,
    }
    command = f"seedrl train {config} --workdir {folder} --seed {seed}"
    (folder / "command.txt").write_text(f"{command}\n{command} --resume must\n")
    (folder / "config.json").write_text(json.dumps({"import_from": [], "config": tree}))
    status = {"time_seconds": NOW, "state": "finished", "reason": f"all {steps} steps taken"}
    status |= {"config": config, "env_steps": steps, "updates": 77}
    (folder / "status.json").write_text(json.dumps(status))
    (folder / "events.jsonl").write_text('{"kind": "started", "fields": {"devices": "1 x cpu"}}\n')
    lines: list[dict[str, Any]] = [{"kind": "session", "env_steps": 0, "elapsed_seconds": 0.5}]
    for number, mean in enumerate(returns, 1):
        lines += [evaluation(100 * number, mean), interval(100 * number)]
    if confirmed is not None:
        line = evaluation(steps + 50, confirmed)
        lines.append({**line, "episodes": 100, "is_confirmation": True})
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    if final is not None:
        score = {"mean": final, "episodes": 100, "updates": 77, "exploration": 0.0}
        (folder / "final_score.json").write_text(json.dumps(score))
    return folder


def evaluation(env_steps: int, mean: float) -> dict[str, Any]:
    """The line of a round of 20 episodes."""
    line = {"kind": "evaluation", "elapsed_seconds": env_steps / 50, "env_steps": env_steps}
    line |= {"ended_env_steps": env_steps + 40, "updates": 7}
    return {**line, "mean_return": mean, "episodes": 20, "is_confirmation": False}


def interval(env_steps: int) -> dict[str, Any]:
    """The line of an interval."""
    line = {"kind": "metrics", "elapsed_seconds": env_steps / 50, "env_steps": float(env_steps)}
    return {**line, "env_steps_per_second": 50.0, "replay_ratio": 3.9, "policy_lag_updates": None}
