"""The commands of README.md and docs: the lines of their `sh` blocks, and those in sentences."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
# Programs of engines that place processes on machines.
ENGINES = ("docker", "gcloud", "kubectl", "ray", "sbatch", "scancel", "scontrol", "sky", "squeue")


class Command(NamedTuple):
    """One command of a document.

    Attributes:
      file: the document, relative to the root.
      words: the command, variables replaced, comment and `&` cut.
    """

    file: str
    words: str

    @property
    def argv(self) -> list[str]:
        """As a shell splits it."""
        return shlex.split(self.words)


def documents() -> list[Path]:
    """README.md, then all pages of docs."""
    pages = sorted((ROOT / "docs").rglob("*.md"))
    return [ROOT / "README.md", *(path for path in pages if "node_modules" not in path.parts)]


def commands() -> list[Command]:
    """Those to be typed as they stand, in their order: the blocks', then of configuration files."""
    found: list[Command] = []
    for path in documents():
        file, text = str(path.relative_to(ROOT)), path.read_text()
        for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL):
            found += [Command(file, words) for words in _lines(block)]
        found += [each for each in _in_sentences(file, text) if each.words.endswith(".py")]
    return found


def commands_in_sentences() -> list[Command]:
    """All commands in the text of documents, some with placeholders: `seedrl evaluate RUN`."""
    pages = [
        path for path in documents() if not path.name.startswith("CHANGELOG")
    ]  # it names old ones, too
    return [
        command
        for path in pages
        for command in _in_sentences(str(path.relative_to(ROOT)), path.read_text())
    ]


def _in_sentences(file: str, text: str) -> list[Command]:
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    spans = re.findall(r"`((?:seedrl|python -m|make) [^`]+)`", prose)
    return [Command(file, " ".join(span.split())) for span in spans]


def _lines(block: str) -> Iterator[str]:
    variables: dict[str, str] = {}
    for line in block.replace("\\\n", " ").splitlines():
        words = re.sub(r"\s#.*", "", line).removesuffix("&").strip()
        for name, value in variables.items():
            words = words.replace(f"${name}", value)
        if assigned := re.fullmatch(r'([A-Z]+)="(.*)"', words):
            variables[assigned[1]] = assigned[2]
        elif words:
            yield " ".join(words.split())


def files_of(document: Path) -> dict[str, str]:
    """Names and texts of a document's files: the blocks whose first line names them."""
    blocks = r"```(?:python|toml)\n# (\S+\.(?:py|toml))\n(.*?)```"
    return dict(re.findall(blocks, document.read_text(), re.DOTALL))


def write_files(document: Path, folder: Path) -> None:
    """Writes them as a reader does."""
    for name, text in files_of(document).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
