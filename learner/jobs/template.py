"""Templates of job files: the file as its reader sees it, with `{{name}}` where jobs differ."""

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

_PLACE = re.compile(r"^([ #]*)\{\{(\w+)\}\}\n|\{\{(\w+)\}\}", re.MULTILINE)
_START = re.compile(r"[ #]*")
# What YAML takes for text as it stands, and a shell for one word.
_PLAIN_YAML = re.compile(r"(--)?[a-z][\w./=:@$()-]*", re.IGNORECASE)
_WORDS_OF_YAML = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})
_WITH_VARIABLE = re.compile(r"[\w./=:@$(){}-]+")


def fill(name: str, values: Mapping[str, str]) -> str:
    """The template of that name with the values in its places.

    A place on a line of its own is taken by all lines of its value, each indented, or made a
    comment, as the place was; by none if the value is empty. Elsewhere further lines begin as the
    first one does.

    Raises KeyError for a place without a value.
    """
    text = (Path(__file__).parent / "templates" / name).read_text()

    def value(match: re.Match[str]) -> str:
        before, block, inline = match.groups()
        if inline is not None:
            start = text.rfind("\n", 0, match.start()) + 1
            first = _START.match(text, start)
            return values[inline].replace("\n", f"\n{first[0] if first else ''}")
        return "".join(f"{before}{line}".rstrip() + "\n" for line in values[block].splitlines())

    return _PLACE.sub(value, text)


def yaml_list(words: Iterable[str]) -> str:
    """The words as a list of YAML, one a line."""
    return "\n".join(f"- {yaml_text(word)}" for word in words)


def yaml_text(word: str) -> str:
    """The word as YAML that is text whatever it looks like."""
    is_plain = _PLAIN_YAML.fullmatch(word) and not word.endswith(":")
    return word if is_plain and word.lower() not in _WORDS_OF_YAML else json.dumps(word)


def shell_words(words: Sequence[str]) -> str:
    """The words as a command, each flag on its line; variables of the shell keep their meaning."""
    start = next((i for i, word in enumerate(words) if word.startswith("-")), len(words))
    lines = [" ".join(map(_shell_word, words[:start])), *map(_shell_word, words[start:])]
    return " \\\n  ".join(lines)


def _shell_word(word: str) -> str:
    flag, equals, value = word.partition("=")
    if "$" in value and _WITH_VARIABLE.fullmatch(word):
        return f'{flag}{equals}"{value}"'
    return shlex.quote(word)
