import json
from pathlib import Path

from learner.extras.watch.run_reader import RunReader, View
from tests.learner.extras.watch.simulated_run import SimulatedRun


def test_a_poll_finds_what_is_new_and_only_that(tmp_path: Path) -> None:
    run = SimulatedRun(tmp_path, env_servers=2)
    reader = RunReader(tmp_path)
    run.advance(5)
    first = reader.poll()
    assert first.brief["facts"]["environment"] == "CartPole-v1"
    assert first.brief["facts"]["agent"] == "R2D2"
    assert first.brief["status"]["env_steps"] == run.steps
    assert first.brief["curve"]["env_steps"] == [run.steps]
    assert [server["name"] for server in first.detail["env_servers"]] == [run.name(0), run.name(1)]
    assert first.detail["events"][0]["kind"] == "started"
    assert reader.poll() == View({}, {})
    run.now += 1
    run.write_status()
    run.say("hung", "a group hangs", is_problem=True)
    second = reader.poll()
    assert set(second.brief) == {"status"}
    assert set(second.detail) == {"env_servers", "events"}
    assert [event["text"] for event in second.detail["events"]] == ["a group hangs"]
    (tmp_path / "videos").mkdir()
    (tmp_path / "videos" / "episode_000.mp4").touch()
    assert [video["name"] for video in reader.poll().detail["videos"]] == ["episode_000.mp4"]
    (tmp_path / "rollouts.json").write_text('{"rollouts": [{"ids": [1]}]}')
    assert reader.poll() == View({}, {"sample": {"rollouts": [{"ids": [1]}]}})
    assert reader.snapshot().detail["sample"] == {"rollouts": [{"ids": [1]}]}
    assert reader.poll() == View({}, {})


def test_files_that_hold_anything_are_read_without_an_error(tmp_path: Path) -> None:
    for name in ("metrics.jsonl", "events.jsonl", "status.json", "config.json", "rollouts.json"):
        (tmp_path / name).write_bytes(b'\xff\xfe{"text": 1}\n[[[\n\x00\n{"text": 1e999}\n{}')
    reader = RunReader(tmp_path)
    assert reader.poll().detail["events"] == []
    (tmp_path / "status.json").write_text('{"env_servers": 3, "time_seconds": "late"}')
    (tmp_path / "config.json").write_text('{"config": [1]}')
    reader.poll()
    assert reader.snapshot().brief["status"] == {"time_seconds": "late"}
    (tmp_path / "status.json").write_text('{"time_seconds": NaN}')
    assert reader.poll().brief == {}
    json.dumps(reader.snapshot(), allow_nan=False)
