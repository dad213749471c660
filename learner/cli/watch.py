"""`seedrl watch DIRECTORY`: a page in the browser that shows a run, or several."""

import contextlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from seedrl.errors import ConfigError
from seedrl.exit_codes import ExitCode
from seedrl.hints import require_extra
from seedrl.programs.command_line import read
from seedrl.programs.flags import POSITIONAL

PROG = "seedrl watch"
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, kw_only=True)
class WatchOptions:
    """Show runs on a dashboard in the browser, while they train or later.

    Serves a web page from the files of the runs until Ctrl-C. The page's address contains a secret,
    so that other users of this machine cannot open it.

    Example: seedrl watch runs --port 8000

    Attributes:
      directory: directory of a run, or of several runs.
      port: port of the page; 0 takes a free one.
      bind: address to serve on.
      insecure: allow an address that other machines reach. Nothing is encrypted: anyone who reads
        the secret in the page's address on the network can view the runs.
    """

    directory: Annotated[Path, POSITIONAL]
    port: int = 0
    bind: str = "127.0.0.1"
    insecure: bool = False


def run(argv: Sequence[str]) -> int:
    options = read(WatchOptions, argv, prog=PROG)
    if not options.directory.is_dir():
        raise ConfigError(
            f"expected the directory of a run, or of several, got {options.directory}"
        )
    if not 0 <= options.port <= 65535:
        raise ConfigError(f"--port: expected 0 to 65535, got {options.port}")
    if options.bind not in _LOOPBACK and not options.insecure:
        raise ConfigError(
            f"--bind: {options.bind!r} can be reached from other machines, and nothing encrypts or "
            "authenticates what is read there; forward the port with ssh, or set --insecure on a "
            "network that you trust"
        )
    require_extra("watch")
    from learner.extras.watch import application

    # Before the address is printed: only the socket knows the port that it got.
    listening = application.listen(options.bind, options.port)
    host = f"[{options.bind}]" if ":" in options.bind else options.bind
    # In the path: a browser sends no header of ours.
    token = secrets.token_urlsafe(16)
    place = f"{host}:{listening.getsockname()[1]}/{token}/"
    print(f"watching {options.directory} at http://{place} (Ctrl-C ends)", flush=True)
    with listening, contextlib.suppress(KeyboardInterrupt):
        application.web_server(options.directory, token).run(sockets=[listening])
    return ExitCode.OK
