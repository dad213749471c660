"""Writes from the code what `make docs` writes: `python -m tests.architecture.documents`.

The references in docs/. A test fails while one differs from what this makes.
"""

import ast
import contextlib
import dataclasses
import functools
import importlib
import io
import operator
import os
import re
import types
import typing
from collections.abc import Callable, Iterator
from pathlib import Path

import envs_server.check.__main__ as check_env
from envs_server.check import server as check_env_server
from envs_server.options import read_options
from learner.cli import main, train
from learner.report import health
from learner.report.events import KINDS as EVENT_KINDS
from learner.report.events import Event
from learner.report.metric_table import KINDS, METRICS, RECORDS, Group
from learner.report.status import (
    EnvServerStatus,
    EvaluationStatus,
    Slots,
    Status,
    Verdict,
)
from learner.serving.ledger import ACCOUNTS
from seedrl.config import Config
from seedrl.exit_codes import ExitCode
from seedrl.programs.help import documented
from tests.faults import matrix as faults

ROOT = Path(__file__).parents[2]
COMMAND = "make docs"
_GROUPS: dict[Group, str] = {
    "balance": "Balance: how fast, and how well acting and learning keep pace",
    "learning": "Learning: any agent",
    "agent": "Agent: R2D2, Ape-X, IMPALA, PPO, SAC and GRPO",
    "episodes": "Episodes",
    "system": "System",
}


def pages() -> dict[str, str]:
    """The generated pages: path from the root -> text."""
    return {
        "docs/metrics.md": metrics_page(),
        "docs/events.md": events_page(),
        "docs/config.md": config_page(),
        "docs/command_line.md": command_line_page(),
        "docs/exit_codes.md": exit_codes_page(),
        "docs/reliability.md": reliability_page(),
        "docs/fault_matrix.md": fault_matrix_page(),
    }


def metrics_page() -> str:
    """Every metric with its kind, unit and meaning."""
    parts = [
        _header("Metrics", "learner/report/metric_table.py and learner/serving/ledger.py"),
        "Each line of `metrics.jsonl` in a run's directory is a JSON object with `kind`, "
        "`time_seconds` (Unix time) and `elapsed_seconds` (of the run, over all of its sessions). "
        "Numbers that are not finite are null. A line of kind `metrics` is written every "
        "`logging.interval_seconds`; TensorBoard has the same numbers in `tb/`, over `env_steps`.",
        _table(("kind", "in `metrics.jsonl`"), KINDS.items()),
    ]
    for group, title in _GROUPS.items():
        rows = (
            (f"`{metric.name}`", metric.kind, metric.unit, metric.meaning)
            for metric in METRICS
            if metric.group == group
        )
        parts += [f"## {title}", _table(("name", "kind", "unit", "meaning"), rows)]
    parts += [
        "## Ledger",
        "Counts of time steps (rows) of a session. `learner/serving/ledger.py` lists the sums that "
        "must be equal. Terms are in [architecture.md](architecture.md#terms).",
        _table(("name", "meaning"), ((f"`ledger/{n}`", text) for n, text in ACCOUNTS.items())),
        "## Prometheus",
        _prometheus(),
        "## Other lines",
    ]
    for kind, (when, fields) in RECORDS.items():
        parts.append(f"**`{kind}`**: {when}.")
        if fields:
            rows = ((f"`{name}`", meaning) for name, meaning in fields.items())
            parts.append(_table(("field", "meaning"), rows))
    return "\n\n".join(parts) + "\n"


def _prometheus() -> str:
    """The gauges of `/metrics`."""
    names = ", ".join(f"`{name}`" for name in health.NUMBERS)
    states = ", ".join(f"`{state}`" for state in health.SLOTS)
    return (
        "`logging.health_bind` serves `/metrics` with the newest values as gauges. Their names are "
        f"`seedrl_` and a name of this page or of [status.json](events.md#statusjson): {names}. "
        "Others are `seedrl_training_return`, `seedrl_evaluation_return` (of the last round), "
        "`seedrl_env_servers` (connected ones), and `seedrl_slots` with the labels `role` "
        f"(`training`, `evaluation`) and `state` ({states}). A gauge without a value is left out. "
        "[Alarms](scaling.md#watch-stop-resume) are in the guide to scaling."
    )


def events_page() -> str:
    """Every kind of event with its fields, and the fields of `status.json`."""
    parts = [
        _header("Events and status", "learner/report/events.py and status.py"),
        "A run prints its events on the terminal, and appends each as one line of JSON to "
        "`events.jsonl` in its directory, over all sessions.",
        _table(("field", "meaning"), _attributes(Event)),
        "## Kinds",
        _table(
            ("kind", "when, and its fields"),
            ((f"`{kind}`", meaning) for kind, meaning in EVENT_KINDS.items()),
        ),
        "## status.json",
        "The state of the run, replaced atomically every second. If the file is older than 15 s "
        "and its state is not `finished`, the learner is dead or hangs.",
        _table(("field", "meaning"), _attributes(Status)),
    ]
    for kind in (Verdict, Slots, EvaluationStatus, EnvServerStatus):
        parts += [f"### {kind.__name__}", _table(("field", "meaning"), _attributes(kind))]
    return "\n\n".join(parts) + "\n"


def _attributes(kind: type) -> Iterator[tuple[str, str]]:
    _, meanings = documented(kind)
    for field in dataclasses.fields(kind):
        yield f"`{field.name}`", meanings[field.name]


def config_page() -> str:
    """Every field of every configuration class with type, default and meaning."""
    sections = [_section(kind) for kind in config_classes()]
    introduction = (
        "`config()` of a Python file returns a configuration. `seedrl train CONFIG "
        "--serving.training-slots 8` overrides a field; `seedrl train CONFIG --help-all` lists all "
        "fields with their values in CONFIG. Fields without a default are required."
    )
    return "\n\n".join([_header("Configuration", "the dataclasses"), introduction, *sections]) + (
        "\n"
    )


def command_line_page() -> str:
    """The help of every command, and its example as a command to be typed."""
    parts = [
        _header("Command line", "the help of the programs"),
        "`seedrl` lists the commands, and `seedrl COMMAND --help` shows this page's text. Commands "
        "with a CONFIG also take every field of the [configuration](config.md) as an option: "
        "`seedrl train CONFIG --help-all` lists them with their values. Wrong usage ends with "
        "[exit code 2](exit_codes.md) and one line; a misspelt command, configuration or option is "
        "answered with the closest ones.",
        'In bash, `complete -o default -C "seedrl complete" seedrl` completes commands, bundled '
        "configurations and options with the Tab key; zsh needs `autoload -U bashcompinit && "
        "bashcompinit` before it.",
    ]
    for title, commands in main.GROUPS.items():
        parts.append(f"## {title}")
        for name in commands:
            parts += _command(f"seedrl {name}", help_of(name))
    parts.append("## Programs of several machines")
    parts += _command("python -m learner", shown_by(lambda: train.main(["--help"])))
    parts += _command("python -m envs_server", shown_by(lambda: read_options(["--help"])))
    return "\n\n".join(parts) + "\n"


def _command(name: str, text: str) -> Iterator[str]:
    (example,) = re.findall(r"^Example: (.*)$", text, re.MULTILINE)
    yield f"### {name}"
    yield f"```sh\n{example}\n```"
    yield f"```text\n{text.replace(f'Example: {example}', '').strip()}\n```".replace("\n\n\n", "\n")


def help_of(command: str) -> str:
    """The help of a command of `seedrl`."""
    match command:
        case "check-env":  # these two become another program
            return shown_by(lambda: check_env.main(["--help"]))
        case "check-env-server":
            return shown_by(lambda: check_env_server.main(["--help"]))
        case _:
            return shown_by(lambda: main.main([command, "--help"]))


def shown_by(show: Callable[[], object]) -> str:
    """What a program prints on a terminal of 100 columns."""
    text, columns = io.StringIO(), os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "100"
    try:
        with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
            show()
    finally:
        os.environ.pop("COLUMNS") if columns is None else os.environ.update(COLUMNS=columns)
    return text.getvalue()


def exit_codes_page() -> str:
    """Every exit code of every program with its meaning."""
    about, meanings = documented(ExitCode)
    rows = ((str(code.value), f"`{code.name}`", meanings[code.name]) for code in ExitCode)
    return "\n\n".join(
        [
            _header("Exit codes", "seedrl/exit_codes.py"),
            *(" ".join(paragraph.split()) for paragraph in about.split("\n\n")),
            _table(("code", "name", "meaning"), rows) + "\n",
        ]
    )


def reliability_page() -> str:
    """Every fault with its promise and its last figure."""
    parts = [_header("Guarantees", faults.SOURCE), faults.GUARANTEES]
    for title, rows in faults.sections():
        lines = (
            (name, row.fault, row.promise, row.figure or row.reason) for name, row in rows.items()
        )
        parts += [f"## {title}", _table(("row", "fault", "promise", "last figure"), lines)]
    return "\n\n".join(parts) + "\n"


def fault_matrix_page() -> str:
    """Every fault with its tests."""
    parts = [_header("Fault matrix", faults.SOURCE), faults.TESTS]
    for title, rows in faults.sections():
        lines = ((name, row.fault, faults.tests_of(row)) for name, row in rows.items())
        parts += [f"## {title}", _table(("row", "fault", "tests"), lines)]
    return "\n\n".join(parts) + "\n"


def config_classes() -> list[type]:
    """The frozen dataclasses of the library called `...Config`: a run's, then by module."""
    found: dict[str, type] = {}
    for path in sorted((ROOT / "seedrl").rglob("*.py")):
        for node in ast.parse(path.read_text(), str(path)).body:
            if isinstance(node, ast.ClassDef) and node.name.endswith("Config"):
                module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
                kind = getattr(importlib.import_module(module), node.name)
                if dataclasses.is_dataclass(kind):
                    found[node.name] = kind
    own = [field.type for field in dataclasses.fields(Config)]
    order = [Config, *(kind for kind in own if kind in found.values())]
    return [*order, *(kind for kind in found.values() if kind not in order)]


def _section(kind: type) -> str:
    path = next((f.name for f in dataclasses.fields(Config) if f.type is kind), None)
    title = kind.__name__ if path is None else f"{path}: {kind.__name__}"
    types_of = typing.get_type_hints(kind)  # without ranges
    about, meanings = documented(kind)
    rows = (
        (
            f"`{field.name}`",
            _type(types_of[field.name]),
            _default(field),
            meanings.get(field.name, ""),
        )
        for field in dataclasses.fields(kind)
        if field.init
    )
    return "\n\n".join(
        [
            f"## {title}",
            f"`{kind.__module__}`. {' '.join(about.split())}",
            _table(("field", "type", "default", "meaning"), rows),
        ]
    )


def _type(kind: object) -> str:
    if typing.get_origin(kind) is typing.Literal:
        return " or ".join(f"`{value}`" for value in typing.get_args(kind))
    if typing.get_origin(kind) is typing.Union:
        kind = functools.reduce(operator.or_, typing.get_args(kind))
    if isinstance(kind, types.UnionType | types.GenericAlias):
        return f"`{kind}`"
    return f"`{getattr(kind, '__name__', kind)}`"


def _default(field: dataclasses.Field) -> str:
    if field.default is not dataclasses.MISSING:
        return f"`{field.default!r}`"
    if field.default_factory is dataclasses.MISSING:
        return ""
    return f"`{getattr(field.default_factory, '__name__', '')}()`"


def _header(title: str, source: str) -> str:
    return f"# {title}\n\n<!-- Made from {source} by `{COMMAND}`; edit those. -->"


def _table(header: tuple[str, ...], rows: typing.Iterable[tuple[str, ...]]) -> str:
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join(_row(line) for line in lines)


def _row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def write() -> Iterator[str]:
    """Writes the pages; gives the names of those that have changed."""
    for name, text in pages().items():
        path = ROOT / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            yield name


if __name__ == "__main__":
    for changed in write():
        print(changed)
