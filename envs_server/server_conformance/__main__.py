"""Entry point: `python -m envs_server.server_conformance --command "node server.js"`.

Exit codes: 0 the env server passes, maybe with notes; 2 wrong arguments, or the command cannot be
started; 3 it breaks a rule; 70 a defect of the checker; 143 interrupted.
"""

import contextlib
import json
import signal
import sys
from collections.abc import Iterator

from envs_server.conformance.findings import Finding
from envs_server.server_conformance.check import Report, check
from envs_server.server_conformance.options import PROG, Options, read_options
from envs_server.server_conformance.session import Plan
from envs_server.server_conformance.subject import Process
from seedrl.exit_codes import ExitCode
from seedrl.programs.outcome import exit_code
from seedrl.wire.seedrl_pb2 import Environment


def main(arguments: list[str] | None = None) -> int:
    """Checks the env server that the command line names and prints a report; the exit code."""
    return exit_code(lambda: _check(read_options(arguments)), prog=PROG)


def _check(options: Options) -> ExitCode:
    plan = Plan(
        environment=Environment(
            id=options.environment, arguments=options.arguments, vectorization="auto"
        ),
        num_envs=options.num_envs,
        steps=options.steps,
        seed=options.seed,
        patience_seconds=options.patience_seconds,
    )
    with _ended_by_sigterm(), Process(options.command, options.num_envs) as subject:
        report = check(subject, plan, say=_ignore if options.json else _say)
    print(_as_json(options, report) if options.json else _as_text(options, report))
    return ExitCode.BROKEN_ENVIRONMENT if report.errors else ExitCode.OK


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _ignore(line: str) -> None:
    """Says nothing of progress: with --json, stdout and stderr may be read as one."""


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM interrupts, as Ctrl-C does, so that the env server is ended too.

    A second one does not, while that takes its time.
    """

    def interrupt(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _as_text(options: Options, report: Report) -> str:
    findings = report.findings
    lines = [finding.line() for finding in [*findings.errors, *findings.notes]]
    lines += [f"skipped {text}" for text in report.skipped]
    count = len(findings.errors)
    verdict = "passes" if not count else f"breaks {'a rule' if count == 1 else f'{count} rules'}"
    lines.append(
        f"{options.command} {verdict}: {report.num_dialogues} dialogues, {report.num_streams} "
        f"streams, {report.num_steps:,} steps of {options.environment}"
    )
    return "\n".join(lines)


def _as_json(options: Options, report: Report) -> str:
    def listed(findings: list[Finding]) -> list[dict[str, object]]:
        return [
            {"rule": f.rule.name, "text": f.text, "times": f.times, "remedy": f.rule.remedy}
            for f in findings
        ]

    content = {
        "command": options.command,
        "passes": not report.errors,
        "errors": listed(report.findings.errors),
        "notes": listed(report.findings.notes),
        "skipped": report.skipped,
        "num_dialogues": report.num_dialogues,
        "num_streams": report.num_streams,
        "num_steps": report.num_steps,
    }
    return json.dumps(content)


if __name__ == "__main__":
    sys.exit(main())
