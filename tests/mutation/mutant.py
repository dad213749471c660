"""A mutant: one planted bug, as the text that it replaces."""

import importlib
import pkgutil
from pathlib import Path
from typing import NamedTuple

_FOLDER = Path(__file__).parent / "mutants"


class Mutant(NamedTuple):
    """A bug of a kind that was made before, here or elsewhere.

    Attributes:
      name: of the mutant in reports.
      file: that it changes, from the root of the tree.
      old: the text that it replaces; occurs once.
      new: the text with the bug.
      bug: the mistake, in a sentence.
    """

    name: str
    file: str
    old: str
    new: str
    bug: str


def all_mutants() -> list[Mutant]:
    """Those of all modules in tests/mutation/mutants."""
    names = sorted(each.name for each in pkgutil.iter_modules([str(_FOLDER)]))
    modules = [importlib.import_module(f"tests.mutation.mutants.{name}") for name in names]
    return [mutant for module in modules for mutant in module.MUTANTS]


def mutated(mutant: Mutant, root: Path) -> str:
    """The mutant's file under `root` with its bug in it.

    Raises ValueError if the text that it replaces does not occur exactly once, or stays the same.
    """
    text = (root / mutant.file).read_text()
    count = text.count(mutant.old)
    if count != 1 or mutant.old == mutant.new:
        raise ValueError(
            f"mutant {mutant.name}: expected its old text once in {mutant.file} and a new text, "
            f"found it {count} times; the code has changed, so write the mutant again"
        )
    return text.replace(mutant.old, mutant.new)
