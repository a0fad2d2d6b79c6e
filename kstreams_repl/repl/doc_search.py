"""The pages of ``docs/``, searched offline: recipes, concepts, tasks and reference, but no design notes.

SQLite's full-text index (FTS5, in Python's own sqlite3) is made in memory for each question, in about a tenth of a second. A wheel has the
pages in ``kstreams_repl/docs``.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from kstreams_repl.pictures.table import Table
from kstreams_repl.system.errors import CallError, MissingPackageError

_PACKAGE = Path(__file__).parents[1]
_PLACES = (_PACKAGE / "docs", _PACKAGE.parent / "docs")
PARTS = ("start", "concepts", "recipes", "tasks", "reference")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_SECTION = re.compile(r"^##+ ", re.MULTILINE)
_IN_ANY_QUESTION = set("a an and are can do does for from how i in is it my of on the to what when why with".split())
_BEST = """SELECT page, heading, snippet(sections, 3, '', '', '…', 24) FROM sections
    WHERE sections MATCH ? ORDER BY bm25(sections, 0, 3, 3, 1)"""
HITS = 5


def search(words: str) -> Table:
    """Return the pages that answer a question best, each with its best section. Nothing is fetched.

    Args:
        words: what one would type into a search box.

    Raises:
        CallError: there is no word to search for.
        MissingPackageError: the installation has no pages.

    Example:
        >>> import kstreams_repl as ks
        >>> ks.recipes.search("how do I count distinct users per day").rows[0][0]
        'docs/recipes/distinct.md'
    """
    asked = [word for word in re.findall(r"\w+", words.lower()) if word not in _IN_ANY_QUESTION]
    if not asked:
        hint = 'for example ks.recipes.search("late records")'
        raise CallError(f"expected words to search for, got {words!r}", hint=hint, argument="words")
    with closing(sqlite3.connect(":memory:")) as index:
        index.execute("CREATE VIRTUAL TABLE sections USING fts5(page UNINDEXED, title, heading, text, tokenize='porter')")
        index.executemany("INSERT INTO sections VALUES (?, ?, ?, ?)", _sections())
        found: dict[str, tuple[str, str, str]] = {}
        for page, heading, text in index.execute(_BEST, (" OR ".join(f'"{word}"' for word in asked),)):
            found.setdefault(page, (page, heading, " ".join(text.split())))
    return Table.of(("page", "section", "text"), list(found.values())[:HITS], note=f"pages in {docs_folder().parent}")


def docs_folder() -> Path:
    """Return the folder of the pages: of the installed package, or of the checkout.

    Raises:
        MissingPackageError: the installation has no pages.
    """
    for folder in _PLACES:
        if folder.is_dir():
            return folder
    expected, hint = " or ".join(map(str, _PLACES)), "install the wheel of kstreams_repl"
    raise MissingPackageError(f"the pages are not installed: expected {expected}", hint=hint, module="kstreams_repl")


def _sections() -> Iterator[tuple[str, str, str, str]]:
    docs = docs_folder()
    for page in sorted(page for part in PARTS for page in (docs / part).rglob("*.md")):
        text = _LINK.sub(r"\1", page.read_text(encoding="utf-8"))
        title = text.partition("\n")[0].removeprefix("# ")
        for section in _SECTION.split(text):
            heading, _, rest = section.partition("\n")
            yield f"docs/{page.relative_to(docs).as_posix()}", title, heading.removeprefix("# "), rest
