"""The web application: the page, its stream of messages, and the server of both."""

import json
import socket
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from learner.extras.watch.feed import Feed, named_runs
from learner.extras.watch.run_reader import recorded
from learner.report.metric_table import METRICS, lines
from learner.serving.ledger import ACCOUNTS, AT_REST
from seedrl.errors import AddressInUseError
from seedrl.run_files import VIDEOS

_PAGE = Path(__file__).parent / "page"
# The browser runs and loads only these files, whatever a run's files contain.
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; media-src 'self'; connect-src 'self'; frame-ancestors 'none'; "
    "base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def application(folder: Path, token: str = "") -> Starlette:
    """The application for a run's directory, or a folder of runs.

    `token`: first part of every path; another one finds nothing. So neither does another web site
    that has the browser come here under a name of its own (DNS rebinding).
    """
    app = Starlette(
        routes=[
            # All addresses on the page are relative.
            Mount(
                f"/{token}",
                routes=[
                    Route("/words.json", _words),
                    Route("/stream", _stream),
                    Route("/video", _video),
                    Mount("/", StaticFiles(directory=_PAGE, html=True)),
                ],
            )
        ],
        middleware=[Middleware(_with_headers)],
    )
    app.state.folder = folder
    return app


def _with_headers(inside: ASGIApp) -> ASGIApp:
    """Adds the headers of every answer."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                extra = [(key.lower().encode(), text.encode()) for key, text in _HEADERS.items()]
                message["headers"] = [*message["headers"], *extra]
            await send(message)

        await inside(scope, receive, with_headers)

    return app


async def _words(request: Request) -> Response:
    """Meanings of metrics and accounts, for the page's labels."""
    metrics = {
        line: {"unit": metric.unit, "meaning": metric.meaning, "group": metric.group}
        for metric in METRICS
        for line in lines(metric)
    }
    *equations, last = [{"left": left, "right": right} for left, right in AT_REST]
    words = {"metrics": metrics, "accounts": ACCOUNTS, "equations": equations, "at_rest": last}
    return Response(json.dumps(words), media_type="application/json")


async def _stream(request: Request) -> Response:
    feed = Feed(request.app.state.folder, request.query_params.get("run"))
    events = (f"data: {message}\n\n" async for message in feed.messages())
    return StreamingResponse(events, media_type="text/event-stream")


def _video(request: Request) -> Response:
    """One of the videos that the page lists; in parts if the browser asks for a range."""
    folder = named_runs(request.app.state.folder).get(request.query_params.get("run", ""))
    name = request.query_params.get("name", "")
    # A name of the list, and no path: it cannot lead out of the folder.
    if folder is None or name not in [video["name"] for video in recorded(folder)]:
        return PlainTextResponse("no such video", status_code=404)
    return FileResponse(folder / VIDEOS / name, media_type="video/mp4")


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 takes a free one. Raises AddressInUseError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=64)
    except OSError as error:
        raise AddressInUseError(
            f"cannot serve on {host} port {port}: {error.strerror}; choose another --bind or --port"
        ) from error


def web_server(folder: Path, token: str = "") -> uvicorn.Server:
    """Serves the page of `folder` with `run(sockets=[...])` until `should_exit`, or a signal."""
    config = uvicorn.Config(
        application(folder, token),
        # Else each request would be a line in the terminal of `seedrl watch`.
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",  # the page has no use for it
        # Pages keep their stream open for ever.
        timeout_graceful_shutdown=1,
    )
    return uvicorn.Server(config)
