import asyncio
import json
from pathlib import Path
from typing import Any, NamedTuple

from learner.extras.watch.application import application
from tests.learner.extras.watch.simulated_run import SimulatedRun
from tests.patience import SECONDS


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


def ask(
    folder: Path,
    path: str,
    *,
    until: bytes = b"",
    token: str = "",
    headers: tuple[tuple[bytes, bytes], ...] = (),
) -> Answer:
    """What the application answers; with `until`, the client leaves once it has that."""

    async def call() -> Answer:
        start: dict[str, Any] = {}
        body = b""
        has_enough = asyncio.Event()

        requests = [{"type": "http.request", "body": b"", "more_body": False}]

        async def receive() -> dict[str, Any]:
            if requests:
                return requests.pop()
            await has_enough.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            nonlocal body
            if message["type"] == "http.response.start":
                start.update(message)
            body += message.get("body", b"")
            if until and until in body:
                has_enough.set()

        bare, _, query = path.partition("?")
        scope = {"type": "http", "method": "GET", "path": bare, "query_string": query.encode()}
        listed = [(b"host", b"127.0.0.1:80"), *headers]
        scope |= {"headers": listed, "http_version": "1.1", "scheme": "http"}
        scope |= {"asgi": {"version": "3.0", "spec_version": "2.3"}, "raw_path": bare.encode()}
        await asyncio.wait_for(application(folder, token)(scope, receive, send), SECONDS)
        answered = {key.decode(): value.decode() for key, value in start["headers"]}
        return Answer(start["status"], answered, body)

    return asyncio.run(call())


def test_the_page_is_served_from_the_package(tmp_path: Path) -> None:
    for path, kind, part in (
        ("/", "text/html", b"seedrl watch"),
        ("/watch.js", "text/javascript", b"EventSource"),
        ("/words.json", "application/json", b"replay_ratio"),
    ):
        answer = ask(tmp_path, path)
        assert answer.status == 200 and answer.headers["content-type"].startswith(kind)
        assert part in answer.body
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")


def test_the_stream_begins_with_what_there_is(tmp_path: Path) -> None:
    SimulatedRun(tmp_path / "a").advance(5)
    answer = ask(tmp_path, "/stream?run=a", until=b"\n\n")
    assert answer.headers["content-type"].startswith("text/event-stream")
    message = json.loads(answer.body.split(b"\n\n")[0].removeprefix(b"data: "))
    assert message["runs"]["a"]["status"]["env_steps"] == 60_000


def test_only_videos_of_the_run_itself_are_served(tmp_path: Path) -> None:
    SimulatedRun(tmp_path / "runs" / "a").advance(5)
    videos = tmp_path / "runs" / "a" / "videos"
    videos.mkdir()
    (videos / "episode_000.mp4").write_bytes(b"0123456789")
    (tmp_path / "secret.mp4").write_bytes(b"secret")
    (videos / "link.mp4").symlink_to(tmp_path / "secret.mp4")
    (videos / "notes.txt").write_text("no video")
    runs, part = tmp_path / "runs", ((b"range", b"bytes=2-4"),)
    whole = ask(runs, "/video?run=a&name=episode_000.mp4")
    assert (whole.status, whole.body) == (200, b"0123456789")
    assert "media-src 'self'" in whole.headers["content-security-policy"]
    assert ask(runs, "/video?run=a&name=episode_000.mp4", headers=part)[::2] == (206, b"234")
    for query in ("run=a&name=link.mp4", "run=a&name=notes.txt", "run=a&name=../../secret.mp4",
                  "run=..&name=episode_000.mp4", "run=a", ""):  # fmt: skip
        assert ask(runs, f"/video?{query}").status == 404
    videos.rename(tmp_path / "elsewhere")
    videos.symlink_to(tmp_path / "elsewhere")
    assert ask(runs, "/video?run=a&name=episode_000.mp4").status == 404


def test_without_the_secret_nothing_is_found(tmp_path: Path) -> None:
    for path in ("/", "/stream", "/words.json", "/watch.js"):
        assert ask(tmp_path, path, token="secret").status == 404
        assert ask(tmp_path, f"/secre{path}", token="secret").status == 404
    for path in ("/", "/words.json", "/watch.js"):
        assert ask(tmp_path, f"/secret{path}", token="secret").status == 200
    assert ask(tmp_path, "/secret/stream", token="secret", until=b"\n\n").status == 200
