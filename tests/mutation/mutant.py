"""A mutant: one planted bug, as the text that it replaces."""

from pathlib import Path
from typing import NamedTuple


class Mutant(NamedTuple):
    """A bug of a kind that was made before, here or elsewhere.

    Attributes:
      name: what it is called in reports.
      file: which file it changes, from the root of the tree.
      old: the text that it replaces; occurs once.
      new: what stands there instead.
      bug: what is wrong then, in a sentence.
      breaks: which promise that breaks.
      equivalent: why no test can tell it from the original; such a mutant is not counted.
    """

    name: str
    file: str
    old: str
    new: str
    bug: str
    breaks: str
    equivalent: str = ""


def mutated(mutant: Mutant, root: Path) -> str:
    """The mutant's file under `root` with its bug in it.

    Raises ValueError if the text that it replaces does not occur exactly once, or stays the same.
    """
    text = (root / mutant.file).read_text()
    count = text.count(mutant.old)
    if count != 1:
        raise ValueError(
            f"mutant {mutant.name}: expected its old text once in {mutant.file}, found it {count} "
            "times; the code has changed, so write the mutant again"
        )
    if mutant.old == mutant.new:
        raise ValueError(f"mutant {mutant.name}: expected another text than the old one")
    return text.replace(mutant.old, mutant.new)
