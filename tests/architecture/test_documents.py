"""The references in docs/ say what the code says."""

import ast
import dataclasses
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from learner.reporting import panel
from learner.reporting.metric_names import METRICS, lines
from learner.reporting.record_kinds import RECORDS
from learner.serving.ledger import ACCOUNTS, APART, AT_REST, QUEUED
from seedrl import config_file
from seedrl.config import Config, EnvironmentConfig
from tests.architecture import documents

ROOT = Path(__file__).parents[2]

NAMES = {metric.name for metric in METRICS} | {f"ledger/{account}" for account in ACCOUNTS}
# What emits numbers that came with their names: of an update, and of the limiter.
COMPUTED = {"learner/learning/loop.py", "learner/session/session.py"}


class Emission(NamedTuple):
    """A call of Metrics in a source file: `name` is a regular expression, None if computed."""

    method: str
    name: str | None
    fields: tuple[str, ...]


def emissions(tree: ast.AST) -> Iterator[Emission]:
    """What is emitted by name: by calls of an object named `metrics`, and in a tally."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(
                    value=ast.Name(id=owner) | ast.Attribute(attr=owner),
                    attr="count" | "gauge" | "observe" | "waited" | "record" as method,
                ),
                args=[name, *_],
                keywords=keywords,
            ) if owner.strip("_") == "metrics":
                fields = tuple(sorted(keyword.arg or "**" for keyword in keywords))
                yield Emission(method, _pattern(name), fields)
            case ast.Subscript(
                value=ast.Name(id=container) | ast.Attribute(attr=container), slice=name
            ) if container in ("counted", "measured", "waited"):
                yield Emission(container, _pattern(name), ())


def _pattern(name: ast.expr) -> str | None:
    match name:
        case ast.Constant(value=str(text)):
            return re.escape(text)
        case ast.JoinedStr(values=parts):
            texts = [
                re.escape(part.value) if isinstance(part, ast.Constant) else ".+" for part in parts
            ]
            return "".join(texts)
    return None


def computed_names(tree: ast.AST) -> Iterator[str]:
    """The names in the dicts of `packed`, and in those called, or returned by, `metrics`."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Name(id="packed"),
                args=[ast.Dict(keys=keys)],
            ):
                yield from _literals(keys)
            case ast.Assign(targets=[ast.Name(id="metrics")], value=ast.Dict(keys=keys)):
                yield from _literals(keys)
            case ast.FunctionDef(name="metrics" | "_metrics"):
                for inner in ast.walk(node):
                    if isinstance(inner, ast.Return) and isinstance(inner.value, ast.Dict):
                        yield from _literals(inner.value.keys)


def _literals(keys: list[ast.expr | None]) -> list[str]:
    return [key.value for key in keys if isinstance(key, ast.Constant)]


@functools.cache
def trees() -> dict[str, ast.AST]:
    """Modules of learner and library, no benchmarks: path from the root -> syntax tree."""
    return {
        str(path.relative_to(ROOT)): ast.parse(path.read_text(), str(path))
        for package in ("learner", "seedrl")
        for path in sorted((ROOT / package).rglob("*.py"))
        if "bench" not in path.parts
    }


@functools.cache
def emitted() -> dict[str, list[Emission]]:
    """What each of these modules emits."""
    return {path: list(emissions(tree)) for path, tree in trees().items()}


def undocumented(tree: ast.AST) -> list[str]:
    """What a module emits, or a program of it computes, under a name that no page explains."""
    found = [name for name in computed_names(tree) if name not in NAMES]
    for emission in emissions(tree):
        if emission.method == "record" or emission.name is None:
            continue
        suffix = "_waits_share" if emission.method == "waited" else ""
        if not any(re.fullmatch(emission.name + suffix, name) for name in NAMES):
            found.append(emission.name)
    return found


PAGES = documents.pages()


@pytest.mark.parametrize("name", PAGES)
def test_generated_pages_are_up_to_date(name: str) -> None:
    path = ROOT / name
    assert path.exists(), f"{name} is missing; run: {documents.COMMAND}"
    assert path.read_text() == PAGES[name], f"run: {documents.COMMAND}"


def test_every_field_of_a_configuration_has_a_meaning() -> None:
    page = documents.config_page()
    assert [row for row in page.splitlines() if row.endswith("|  |")] == []


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("self._metrics.count('env_steps', 3)", []),
        ("metrics.count('lost_socks')", ["lost_socks"]),
        ("self._metrics.waited('acting', 0.5)", []),
        ("self._tally.counted['env_steps'] += 3", []),
        ("tally.counted['lost_socks'] += 1", ["lost_socks"]),
        ("measured['lost_socks'].append(1)", ["lost_socks"]),
        ("self._tally.waited['loss'] += 0.5", ["loss"]),
        ("self._metrics.waited('loss', 0.5)", ["loss"]),
        ("metrics.gauge(f'ledger/{account}', rows)", []),
        ("metrics.gauge(f'socks/{account}', rows)", ["socks/.+"]),
        ("metrics.observe(name, number)", []),
        ("packed({'loss': x, 'lost_socks': y, **z})", ["lost_socks"]),
        ("def metrics(self):\n    return {'lost_socks': x, 'loss': y}", ["lost_socks"]),
        ("text.count('lost_socks')", []),
    ],
)
def test_the_search_finds_names_that_no_page_explains(code: str, expected: list[str]) -> None:
    assert undocumented(ast.parse(code)) == expected


def test_every_metric_that_is_emitted_is_documented() -> None:
    found = {path: names for path, tree in trees().items() if (names := undocumented(tree))}
    assert found == {}


def test_only_these_emit_names_that_came_with_their_numbers() -> None:
    places = {path for path, found in emitted().items() if any(each.name is None for each in found)}
    assert places == COMPUTED


def test_every_rare_metric_is_emitted_somewhere() -> None:
    patterns = [each.name for found in emitted().values() for each in found if each.name]
    patterns += [name for tree in trees().values() for name in computed_names(tree)]
    rare = {metric.name for metric in METRICS if metric.is_rare}
    assert {name for name in rare if not any(re.fullmatch(p, name) for p in patterns)} == set()


def test_every_kind_of_line_is_documented_with_its_fields_and_written() -> None:
    written = {
        (emission.name, tuple(field for field in emission.fields if field != "**"))
        for found in emitted().values()
        for emission in found
        if emission.method == "record"
    }
    assert written == {(record.kind, tuple(sorted(record.fields))) for record in RECORDS}


def test_what_a_person_sees_of_a_run_is_documented() -> None:
    shown = {name for cells in panel.CELLS.values() for name, _ in cells}
    assert shown - {line for metric in METRICS for line in lines(metric)} == set()


def test_the_ledger_documents_the_accounts_of_its_equations() -> None:
    equations = [*AT_REST, QUEUED]
    named = {name for equation in equations for side in equation for name in side}
    assert named == set(ACCOUNTS) - APART


DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_source_that_a_document_names_exists(document: Path) -> None:
    text = document.read_text()
    tops = "learner|seedrl|envs_server|tests|configs|proto"
    paths = re.findall(rf"`((?:{tops})/[\w./-]*)`", text)
    assert {path for path in paths if not any(ROOT.glob(path.replace("NAME", "*")))} == set()
    modules = re.findall(rf"python -m ((?:{tops})[\w.]*)", text)
    found = {module: ROOT / module.replace(".", "/") for module in modules}
    missing = {
        module
        for module, path in found.items()
        if not (path / "__main__.py").exists() and not path.with_suffix(".py").exists()
    }
    assert missing == set()


def field_paths(prefix: str, value: Any) -> Iterator[str]:
    """The paths of a configuration's fields, as flags spell them."""
    for field in dataclasses.fields(value):
        item = getattr(value, field.name)
        path = f"{prefix}{field.name.replace('_', '-')}"
        if dataclasses.is_dataclass(item):
            yield from field_paths(f"{path}.", item)
        else:
            yield path


# The changelog names what there was before, too.
@pytest.mark.parametrize(
    "document",
    [
        path
        for path in [*DOCUMENTS, *ROOT.glob("configs/*.py"), *ROOT.glob("configs/jobs/*")]
        if path.name != "CHANGELOG.md"
    ],
    ids=lambda path: path.name,
)
def test_every_field_that_a_document_names_exists(document: Path) -> None:
    text = document.read_text()
    sections = {field.name for field in dataclasses.fields(Config)}
    named = set(re.findall(r"--([a-z]+\.[a-z._-]*[a-z])", text))
    named |= set(re.findall(r"`([a-z]+\.[a-z_]+)`", text))
    own = ROOT / "docs" / "examples" / "own_network" / "config.py"
    known = {*field_paths("", config_file.load("cartpole_r2d2"))}
    known |= {*field_paths("", config_file.load(own))}
    if document.parent == ROOT / "configs":
        known |= {*field_paths("", config_file.load(document.stem))}
    spelled = {
        name.replace("_", "-").replace(".no-", ".")
        for name in named
        if name.split(".")[0] in sections
    }
    assert spelled - known == set()


def test_defaults_that_troubleshooting_names_are_those_of_the_configuration() -> None:
    text = (ROOT / "docs" / "troubleshooting.md").read_text()
    stated = re.findall(r"`([a-z]+)\.([a-z_]+)` \((\d[\d,.]*)\)", text)
    assert len(stated) >= 3
    config = Config(environment=EnvironmentConfig(id="any"), agent=None)
    for section, name, number in stated:
        default = getattr(getattr(config, section), name)
        assert default == float(number.replace(",", "")), f"{section}.{name}"
