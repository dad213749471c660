"""`status.json`: whole, or as it was."""

import json
from pathlib import Path

from learner.report.status import EnvServerStatus, Slots, Status, write_status
from seedrl.run_files import STATUS


def status(env_steps: int) -> Status:
    return Status(
        time_seconds=1.0,
        state="training",
        config="cartpole_r2d2",
        pid=7,
        started_seconds=0.5,
        elapsed_seconds=0.5,
        env_steps=env_steps,
        total_steps=100,
        target_return=475.0,
        metrics={"replay_ratio": float("nan")},
        training_slots=Slots(total=4, live=2),
        evaluation_slots=Slots(total=1),
        env_servers=(
            EnvServerStatus(
                name="vm:1",
                host="vm",
                state="live",
                since_seconds=0.75,
                groups=1,
                environments=2,
                training_slots=2,
                evaluation_slots=0,
            ),
        ),
    )


def test_the_file_is_strict_json_and_is_replaced_as_a_whole(tmp_path: Path) -> None:
    for env_steps in (1, 2):
        write_status(tmp_path, status(env_steps))
    text = (tmp_path / STATUS).read_text()
    found = json.loads(text, parse_constant=lambda name: 1 / 0)
    assert (found["env_steps"], found["metrics"]["replay_ratio"]) == (2, None)
    assert found["env_servers"][0]["hung_groups"] == []
    assert [path.name for path in tmp_path.iterdir()] == [STATUS]
