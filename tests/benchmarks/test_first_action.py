"""When a run's first step is seen in its metrics."""

import json

from tests.benchmarks.first_action import first_step_time


def _line(kind: str, at: float, **fields: float) -> str:
    return json.dumps({"kind": kind, "time_seconds": at, **fields})


def test_the_first_line_with_steps_counts() -> None:
    lines = [
        _line("checkpoint", 1.0),
        _line("metrics", 2.0, env_steps=0.0),
        _line("metrics", 3.0, env_steps=32.0),
        _line("metrics", 4.0, env_steps=64.0),
    ]
    assert first_step_time(lines) == 3.0


def test_without_steps_or_with_half_a_line_there_is_none_yet() -> None:
    whole = _line("metrics", 3.0, env_steps=32.0)
    assert first_step_time([_line("metrics", 2.0, env_steps=0.0), whole[:-5]]) is None
