"""Entry point: `python -m envs_server.check.check_server --command "node server.js"`.

Exit codes: 0 the env server passes, maybe with notes; 2 wrong arguments, or the command cannot be
started; 3 it breaks a rule; 70 a defect of the checker; 143 interrupted.
"""

import contextlib
import json
import signal
import sys
from collections.abc import Iterator, Sequence

from envs_server.check.server_options import PROG, Options, read_options
from seedrl.exit_codes import ExitCode
from seedrl.programs.outcome import exit_code


def main(arguments: Sequence[str] | None = None) -> int:
    """Checks the env server that the command line names and prints a report; the exit code."""
    return exit_code(lambda: _check(read_options(arguments)), prog=PROG)


def _check(options: Options) -> ExitCode:
    from envs_server.check.learner import Process
    from envs_server.check.server import check

    def log(line: str) -> None:
        if not options.json:  # then stdout and stderr may be read as one
            print(line, file=sys.stderr, flush=True)

    with _ended_by_sigterm(), Process(options.command, options.num_envs) as subject:
        trial = check(subject, options, log=log)
    counts = {"num_streams": trial.num_streams, "num_steps": trial.num_steps}
    if options.json:
        content = {"command": options.command, **trial.findings.as_json(), **counts}
        print(json.dumps(content | {"skipped": trial.skipped}))
    else:
        for line in (*trial.findings.lines(), *(f"skipped {text}" for text in trial.skipped)):
            print(line)
        print(
            f"{options.command} {trial.findings.verdict()}: {trial.num_streams} streams, "
            f"{trial.num_steps:,} steps of {options.environment}"
        )
    return ExitCode.FAULTS if trial.findings.errors else ExitCode.OK


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM interrupts like Ctrl-C, so that the env server is ended too; a second is ignored."""

    def interrupt(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    sys.exit(main())
