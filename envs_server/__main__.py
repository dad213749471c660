"""Entry point of an env server: `python -m envs_server --learner ADDRESS --num-envs E`.

`envs_server.options` documents flags and exit codes.
"""

import logging
import sys
from collections.abc import Sequence

from envs_server.options import PROG, Options, read_options
from envs_server.stop import HangLimit, Stop, end_with_parent, is_supervised
from seedrl.programs.outcome import exit_code, leave


def main(argv: Sequence[str] | None = None) -> None:
    """Runs an env server until its work is over, and exits the process with its code."""
    words = sys.argv[1:] if argv is None else argv
    leave(exit_code(lambda: _run(words), prog=PROG))


def _run(words: Sequence[str]) -> int:
    if words[:1] == ["--version"]:
        from seedrl.programs.help import print_version_if_asked

        print_version_if_asked(words)
    options = read_options(words)
    # numpy and gRPC are imported only once the command line is known to be good.
    # A child has the same command line: the mark in its environment tells them apart.
    if (options.processes > 1 or options.logs is not None) and not is_supervised():
        from envs_server.supervisor import supervise

        return supervise(options, words)
    return _serve(options)


def _serve(options: Options) -> int:
    from envs_server.client import Client

    line = "%(asctime)s env server %(process)d: %(message)s"
    logging.basicConfig(level=logging.INFO, format=line, stream=sys.stderr)
    # First: from here on a signal ends it in order, and so does the death of its supervisor, which
    # may have died while Python started.
    stop = Stop()
    stop.install()
    end_with_parent()
    token, credentials = "", None
    # TLS and its files: most learners of the same host need neither.
    if options.token_file or options.authority:
        from seedrl.wire.credentials import Certificates, read_token

        token = read_token(options.token_file) if options.token_file else ""
        files = (options.certificate, options.private_key, options.authority)
        credentials = Certificates(*files).of_client()
    client = Client(options, stop, token=token, credentials=credentials, hang=HangLimit())
    return client.run()


if __name__ == "__main__":
    main()
