import shlex
from pathlib import Path

import pytest
import yaml

from learner.jobs import template

TEXT = """\
a: {{one}}
list:
  {{words}}
  {{nothing}}
# {{note}}
run: |
  until {{command}}; do
"""


@pytest.fixture
def name(tmp_path: Path) -> str:
    path = tmp_path / "template.yaml"
    path.write_text(TEXT)
    return str(path)  # an absolute path stands for itself below the folder of templates


def test_values_take_their_places_and_keep_the_indentation(name: str) -> None:
    values = {
        "one": "1",
        "words": "- x\n- y: 1\n  z: 2",
        "nothing": "",
        "note": "first\n\nsecond",
        "command": "first \\\n  --second",
    }
    assert template.fill(name, values) == (
        "a: 1\nlist:\n  - x\n  - y: 1\n    z: 2\n# first\n#\n# second\n"
        "run: |\n  until first \\\n    --second; do\n"
    )


def test_a_comment_stays_one_however_many_lines_it_gets(tmp_path: Path) -> None:
    path = tmp_path / "template"
    path.write_text("#!/bin/sh\n# Run: {{note}}\n  # Also: {{note}}\n")
    filled = template.fill(str(path), {"note": "here,\nnot there."})
    assert filled == "#!/bin/sh\n# Run: here,\n# not there.\n  # Also: here,\n  # not there.\n"


def test_what_a_value_contains_is_no_place(name: str) -> None:
    values = dict.fromkeys(("one", "words", "nothing", "note", "command"), "{{other}}")
    assert template.fill(name, values).count("{{other}}") == 5


def test_a_place_without_a_value_is_an_error(name: str) -> None:
    with pytest.raises(KeyError, match="words"):
        template.fill(name, {"one": "1"})


@pytest.mark.parametrize(
    "word",
    [
        *("cartpole_r2d2", "--workdir=/checkpoints/run", "--learner=$(LEARNER_HOST):8686"),
        *("8", "2x2", "1e3", "yes", "Null", "~", "-", "a b", "a: b", "a:", "a #b", "{x}", "", "é"),
        *('say "no"', "it's", "--flag=a, b", "0.0.0.0:8686", "unix:/sockets/learner.sock"),
    ],
)
def test_yaml_reads_every_word_as_the_text_that_it_is(word: str) -> None:
    assert yaml.safe_load(template.yaml_text(word)) == word
    assert yaml.safe_load(template.yaml_list([word, "end"])) == [word, "end"]


def test_a_shell_reads_the_words_and_replaces_their_variables() -> None:
    words = ["program", "my config.py", "--to=$folder/x", "--name=it's", "--cost=5$ or so"]
    text = template.shell_words(words)
    assert text.splitlines()[0] == "program 'my config.py' \\"
    assert '--to="$folder/x"' in text  # may have spaces
    assert shlex.split(text.replace("\\\n", "")) == words
