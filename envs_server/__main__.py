"""Entry point of an env server: `python -m envs_server --learner ADDRESS --num-envs E`.

`envs_server.options` documents flags and exit codes.
"""

import functools
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from envs_server.options import PROG, Options, read_options
from envs_server.stop import HangLimit, Stop
from seedrl.programs.outcome import exit_code, leave


def main(argv: Sequence[str] | None = None) -> None:
    """Runs an env server until its work is over, and exits the process with its code."""
    words = sys.argv[1:] if argv is None else argv
    leave(exit_code(lambda: _run(words), prog=PROG))


def _run(words: Sequence[str]) -> int:
    # The environment's module may lie there. `python -m` has it first on the path; as the script
    # `seedrl-env-server` this is the script's folder instead. A learner starts it with -P, and has
    # the folder on PYTHONPATH unless it is a run's.
    if not sys.flags.safe_path:
        sys.path.append(os.getcwd())
    options = read_options(words)
    # numpy and gRPC are imported only once the command line is known to be good.
    if options.processes == 1 and options.logs is None:
        return _serve(options)
    # numpy's threads would not be in the forks, and each env server has a core at best.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    import envs_server.client  # noqa: F401 - once, for all forks
    from envs_server.supervisor import supervise

    return supervise(options, functools.partial(_serve, options))


def _serve(options: Options, notes: Path | None = None) -> int:
    from envs_server.client import Client

    line = "%(asctime)s env server %(process)d: %(message)s"
    logging.basicConfig(level=logging.INFO, format=line, stream=sys.stderr)
    # First: from here on a signal ends it in order, and so does the death of its supervisor.
    stop = Stop()
    stop.install()
    token, credentials = "", None
    # TLS and its files: most learners of the same host need neither.
    if options.token_file or options.authority:
        from seedrl.wire.credentials import Certificates, read_token

        token = read_token(options.token_file) if options.token_file else ""
        files = (options.certificate, options.private_key, options.authority)
        credentials = Certificates(*files).of_client()
    hang = HangLimit()
    client = Client(options, stop, token=token, credentials=credentials, hang=hang, notes=notes)
    return client.run()


if __name__ == "__main__":
    main()
