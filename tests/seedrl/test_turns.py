"""Turns as rows, and vocabularies."""

import json
from pathlib import Path

import numpy as np
import pytest

import seedrl
from seedrl.specs import MOST_SEED, TokensSpec
from seedrl.token_env import CharactersVocabulary, TokenizerVocabulary, Vocabulary
from seedrl.turns import illegal_turns, turn_ids, turn_row

_SPEC = TokensSpec(vocabulary=5, longest_turn=3, longest_completion=2, end=4)


def test_a_turn_comes_back_from_its_row() -> None:
    for ids, seed in (([], None), ([0], 0), ([4, 0, 3], MOST_SEED)):
        row = turn_row(_SPEC, ids, seed)
        assert row[0] == (0 if seed is None else seed + 1)
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


def _tokenizer(folder: Path) -> Path:
    words = {"<bos>": 0, "a": 1, "b": 2, "ab": 3, "<end>": 7}
    special = [
        {"id": words[each], "content": each, "special": True}
        | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        for each in ("<bos>", "<end>")
    ]
    first = {"SpecialToken": {"id": "<bos>", "type_id": 0}}
    content = {
        "version": "1.0",
        "added_tokens": special,
        "model": {"type": "BPE", "vocab": words, "merges": [["a", "b"]], "fuse_unk": False},
        # Adds <bos>, as those of many models do; an environment says itself what it asks.
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [first, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": each, "type_id": 0}} for each in "AB"],
            "special_tokens": {"<bos>": {"id": "<bos>", "ids": [0], "tokens": ["<bos>"]}},
        },
        "decoder": {"type": "Fuse"},
    }
    (folder / "tokenizer.json").write_text(json.dumps(content))
    return folder / "tokenizer.json"


def test_a_tokenizer_file_is_a_vocabulary(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    file = _tokenizer(tmp_path)
    tokens: Vocabulary = TokenizerVocabulary(file, end="<end>")
    assert (tokens.size, tokens.end) == (8, 7)
    ids = tokens.encode("abba<bos>")
    assert ids.dtype == np.int32 and ids.tolist() == [3, 2, 1, 0]
    assert tokens.decode(np.append(ids, [7, 1])) == "abba<bos>"
    with pytest.raises(ValueError, match="end"):
        TokenizerVocabulary(file, end="<eos>")
    for wrong in (tmp_path / "none.json", Path(__file__)):
        with pytest.raises(ValueError, match=wrong.name):
            TokenizerVocabulary(wrong, end="<end>")
