"""The mutants still fit the code that they change."""

from pathlib import Path

import pytest

from tests.mutation.mutant import Mutant, all_mutants, mutated

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("mutant", all_mutants(), ids=lambda mutant: mutant.name)
def test_a_mutant_applies_once_and_compiles(mutant: Mutant) -> None:
    compile(mutated(mutant, ROOT), mutant.file, "exec")


def test_mutants_have_names_of_their_own() -> None:
    names = [mutant.name for mutant in all_mutants()]
    assert len(names) == len(set(names)) >= 90
