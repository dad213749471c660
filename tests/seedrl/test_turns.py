"""Turns as rows, and vocabularies."""

import numpy as np
import pytest

import seedrl
from seedrl.specs import TokensSpec
from seedrl.token_env import CharactersVocabulary, Vocabulary
from seedrl.turns import illegal_turns, turn_ids, turn_row

_SPEC = TokensSpec(vocabulary=5, longest_turn=3, longest_completion=2, end=4)


def test_a_turn_comes_back_from_its_row() -> None:
    for ids in ([], [0], [4, 0, 3]):
        row = turn_row(_SPEC, ids)
        assert row.dtype == np.int32 and row.shape == _SPEC.turn.shape
        assert turn_ids(row).tolist() == ids
        assert not illegal_turns(_SPEC, row[None]).any()


@pytest.mark.parametrize("ids", [[0] * 4, [5], [-1], [0.5], [[1]]])
def test_what_is_no_turn_is_refused(ids: list[int]) -> None:
    with pytest.raises(ValueError, match=r"^turn: "):
        turn_row(_SPEC, ids)


@pytest.mark.parametrize(
    ("tokens", "text"),
    [(seedrl.bytes_vocabulary(), "2 + 3 = ü"), (CharactersVocabulary("0123+="), "1+2=3")],
)
def test_text_comes_back_from_its_ids(tokens: Vocabulary, text: str) -> None:
    ids = tokens.encode(text)
    assert ids.dtype == np.int32 and ids.max() < tokens.end < tokens.size
    assert tokens.decode(ids) == text
    assert tokens.decode(np.append(ids, [tokens.end, ids[0]])) == text


def test_an_alphabet_is_checked() -> None:
    with pytest.raises(ValueError, match="alphabet"):
        CharactersVocabulary("aba")
    with pytest.raises(ValueError, match="c"):
        CharactersVocabulary("ab").encode("abc")
