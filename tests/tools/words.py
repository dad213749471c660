"""Counts words that plain English avoids: `python -m tests.tools.words`, a part of `make check`.

README.md and the pages of docs, without code. Prints each figure with its limit, and each page that
is over it; ends with 1 if a figure is over its limit. Peers have at most half of these limits.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Occurrences per 1,000 words, at most.
LIMITS = {
    "what": (r"\bwhat(ever)?\b", 0.5),
    "say, tell": (r"\b(say|says|said|saying|tell|tells|told)\b", 0.3),
    "beside": (r"\bbeside\b", 0.1),
    "alone": (r"\balone\b", 0.1),
    "begin": (r"\b(begin|begins|began|begun)\b", 0.1),
    "that of": (r"\b(that|those) of\b", 0.1),
}
LONGEST_SENTENCE = 35  # words
MOST_LONG = 1.0  # percent of all sentences


def prose(text: str) -> str:
    """A page without code blocks, code and the targets of links."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    text = re.sub(r"`[^`]*`", "X", text)
    return re.sub(r"\]\([^)]*\)", "]", text)


def sentences(text: str) -> list[str]:
    """Sentences, cells of tables and items of lists."""
    parts = re.split(r"(?<=[.!?])\s+|\n\s*\n|\n\s*[-|#]|\|", text)
    return [part for part in parts if part.split()]


def main() -> int:
    """Prints the table; 1 if a figure is over its limit."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    # Changelogs are lists of names; packages that an example installed are not ours.
    texts = {
        str(page.relative_to(ROOT)): prose(page.read_text())
        for page in pages
        if "CHANGELOG" not in page.name and "node_modules" not in page.parts
    }
    words = sum(len(text.split()) for text in texts.values())
    is_over = False
    for name, (pattern, limit) in LIMITS.items():
        counts = {page: len(re.findall(pattern, text, re.I)) for page, text in texts.items()}
        figure = 1000 * sum(counts.values()) / words
        worst = ", ".join(
            f"{page} {count}" for page, count in counts.items() if count > words * limit / 20_000
        )
        print(f"{name:24} {figure:5.2f} of {limit:.2f} per 1,000 words  {worst}")
        is_over |= figure > limit
    lengths = [len(sentence.split()) for text in texts.values() for sentence in sentences(text)]
    figure = 100 * sum(length > LONGEST_SENTENCE for length in lengths) / len(lengths)
    print(f"{f'over {LONGEST_SENTENCE} words':24} {figure:5.2f} of {MOST_LONG:.2f} % of sentences")
    return int(is_over or figure > MOST_LONG)


if __name__ == "__main__":
    sys.exit(main())
