"""The mutants still fit the code that they change."""

import warnings
from pathlib import Path

import pytest

from tests.mutation.catalogue import MUTANTS
from tests.mutation.mutant import Mutant, mutated

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_applies_once_and_compiles(mutant: Mutant) -> None:
    text = mutated(mutant, ROOT)
    assert text != (ROOT / mutant.file).read_text()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compile(text, mutant.file, "exec")


def test_mutants_have_names_of_their_own_and_say_what_they_break() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert len([mutant for mutant in MUTANTS if not mutant.equivalent]) >= 40
    for mutant in MUTANTS:
        assert mutant.name.isidentifier()
        assert mutant.bug.endswith(".")
        assert mutant.breaks


@pytest.mark.parametrize(
    ("old", "message"),
    [("absent", "found it 0 times"), ("twice", "found it 2 times"), ("same", "another text")],
)
def test_a_mutant_that_does_not_fit_is_refused(tmp_path: Path, old: str, message: str) -> None:
    (tmp_path / "code.py").write_text("twice = twice\nsame = 1\n")
    mutant = Mutant("name", "code.py", old, "same", "A bug.", "a promise")
    with pytest.raises(ValueError, match=f"mutant name: .*{message}"):
        mutated(mutant, tmp_path)
