"""The references in docs/ say what the code says."""

import dataclasses
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from learner.serving.ledger import ACCOUNTS, AT_REST, QUEUED, TOKENS
from seedrl.config import Config
from seedrl.config_io import load
from tests.architecture import documents

ROOT = Path(__file__).parents[2]


def test_generated_pages_are_up_to_date() -> None:
    pages = documents.pages()
    found = {name: (ROOT / name).read_text() for name in pages if (ROOT / name).exists()}
    assert found == pages, f"run: {documents.COMMAND}"


def test_every_field_of_a_configuration_has_a_meaning() -> None:
    page = documents.config_page()
    assert [row for row in page.splitlines() if row.endswith("|  |")] == []


def test_the_ledger_documents_the_accounts_of_its_equations() -> None:
    equations = [*AT_REST, QUEUED, *TOKENS]
    named = {name for equation in equations for side in equation for name in side}
    assert named == set(ACCOUNTS)


# The changelogs name removed files, too.
DOCUMENTS = [
    path
    for path in sorted(
        [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("docs/agents/*.md")]
    )
    if not path.name.startswith("CHANGELOG")
]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_source_that_a_document_names_exists(document: Path) -> None:
    text = document.read_text()
    tops = "learner|seedrl|envs_server|tests|configs|proto"
    paths = re.findall(rf"`((?:{tops})/[\w./-]*)`", text)
    assert {path for path in paths if not any(ROOT.glob(path.replace("NAME", "*")))} == set()


def field_paths(prefix: str, value: Any) -> Iterator[str]:
    """The paths of a configuration's fields, as flags spell them."""
    for field in dataclasses.fields(value):
        item = getattr(value, field.name)
        path = f"{prefix}{field.name.replace('_', '-')}"
        if dataclasses.is_dataclass(item):
            yield from field_paths(f"{path}.", item)
        else:
            yield path


@functools.cache
def known_fields() -> frozenset[str]:
    """Of all agents."""
    own = ROOT / "docs" / "examples" / "own_network" / "config.py"
    bundled = ROOT.glob("configs/default_*.py")
    names: list[str | Path] = [own, "reverse_grpo", *(path.stem for path in bundled)]
    return frozenset(path for name in names for path in field_paths("", load(name)))


@pytest.mark.parametrize(
    "document",
    [*DOCUMENTS, *ROOT.glob("configs/*.py"), *ROOT.glob("configs/jobs/*")],
    ids=lambda path: path.name,
)
def test_every_field_that_a_document_names_exists(document: Path) -> None:
    text = document.read_text()
    sections = {field.name for field in dataclasses.fields(Config)}
    named = set(re.findall(r"--([a-z]+\.[a-z._-]*[a-z])", text))
    named |= set(re.findall(r"`([a-z]+\.[a-z_]+)`", text))
    known = {*known_fields()}
    if document.parent == ROOT / "configs":
        known |= {*field_paths("", load(document.stem))}
    spelled = {
        name.replace("_", "-").replace(".no-", ".")
        for name in named
        if name.split(".")[0] in sections
    }
    assert spelled - known == set()
