import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.learner.extras.watch.served import served
from tests.learner.extras.watch.simulated_run import SimulatedRun
from tests.patience import SECONDS


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


def ask(url: str, *, until: bytes = b"", **headers: str) -> Answer:
    """The answer to a GET; with `until`, the client leaves once it has that."""
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as response:
            body = b""
            while not (until and until in body) and (part := response.read1()):
                body += part
            return Answer(response.status, response.headers, body)
    except urllib.error.HTTPError as error:
        return Answer(error.code, error.headers, b"")


def test_the_page_is_served_from_the_package(tmp_path: Path) -> None:
    with served(tmp_path) as url:
        for path, kind, part in (
            ("", "text/html", b"seedrl watch"),
            ("watch.js", "text/javascript", b"EventSource"),
            ("words.json", "application/json", b"replay_ratio"),
        ):
            answer = ask(f"{url}{path}")
            assert answer.status == 200 and answer.headers["content-type"].startswith(kind)
            assert part in answer.body
            assert answer.headers["content-security-policy"].startswith("default-src 'none'")


def test_the_stream_begins_with_what_there_is(tmp_path: Path) -> None:
    SimulatedRun(tmp_path / "a").advance(5)
    with served(tmp_path) as url:
        answer = ask(f"{url}stream?run=a", until=b"\n\n")
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
    with served(tmp_path / "runs") as url:
        shown = f"{url}video?run=a&name=episode_000.mp4"
        whole = ask(shown)
        assert (whole.status, whole.body) == (200, b"0123456789")
        assert "media-src 'self'" in whole.headers["content-security-policy"]
        assert ask(shown, range="bytes=2-4")[::2] == (206, b"234")
        for query in ("run=a&name=link.mp4", "run=a&name=notes.txt", "run=a&name=../../secret.mp4",
                      "run=..&name=episode_000.mp4", "run=a", ""):  # fmt: skip
            assert ask(f"{url}video?{query}").status == 404
        videos.rename(tmp_path / "elsewhere")
        videos.symlink_to(tmp_path / "elsewhere")
        assert ask(shown).status == 404


def test_without_the_secret_nothing_is_found(tmp_path: Path) -> None:
    with served(tmp_path, token="secret") as url:
        for path in ("", "stream", "words.json", "watch.js"):
            assert ask(f"{url}{path}").status == 404
            assert ask(f"{url}secre/{path}").status == 404
        for path in ("", "words.json", "watch.js"):
            assert ask(f"{url}secret/{path}").status == 200
        assert ask(f"{url}secret/stream", until=b"\n\n").status == 200
