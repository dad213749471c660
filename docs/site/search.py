"""Ranks pages in the site's search, where a page's own front matter would show on other hosts."""

from typing import Any

# A question is asked in the words of its symptom; a term of another library has one page.
_BOOSTS = {"troubleshooting.md": 4, "coming_from.md": 2, "glossary.md": 2}
_EXCLUDED = {"CHANGELOG_archive.md", "fault_matrix.md", "performance_notebook.md"}


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Called by mkdocs for each page; material's search reads its `meta`."""
    path = page.file.src_uri
    page.meta["search"] = {"boost": _BOOSTS.get(path, 1), "exclude": path in _EXCLUDED}
    return markdown
