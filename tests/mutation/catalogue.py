"""All mutants, by the modules of tests/mutation/mutants."""

import importlib
import pkgutil
from pathlib import Path

from tests.mutation.mutant import Mutant

_FOLDER = Path(__file__).parent / "mutants"
_NAMES = sorted(each.name for each in pkgutil.iter_modules([str(_FOLDER)]))
MUTANTS: tuple[Mutant, ...] = tuple(
    mutant
    for name in _NAMES
    for mutant in importlib.import_module(f"tests.mutation.mutants.{name}").MUTANTS
)
