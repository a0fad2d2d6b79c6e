"""Recipes: questions, each answered on a page of ``docs/recipes/``, which opens as a notebook.

A page is a doctest, which the tests run. In its notebook each block of examples is one cell, without prompts and results; the text between
them stays text.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from doctest import DocTestParser
from pathlib import Path

from kstreams_repl.pictures.table import Table
from kstreams_repl.repl.doc_search import docs_folder
from kstreams_repl.system.errors import CallError, did_you_mean
from kstreams_repl.system.types import JsonObject

_EXAMPLES = re.compile(r"^```python\n(>>> .*?)^```\n", re.MULTILINE | re.DOTALL)
_RECIPE_LINK = re.compile(r"\[([^\]]+)\]\(([\w-]+)\.md\)")
_DOCS_LINK = re.compile(r"\[([^\]]+)\]\(\.\./([\w/-]+\.md)(?:#[\w-]+)?\)")


@dataclass(frozen=True, slots=True)
class Notebook:
    """A recipe's notebook in a folder; it shows itself as a link.

    Attributes:
        path: the file.
        question: its title.
        created: False: a file of that name was there, and is unchanged.
    """

    path: Path
    question: str
    created: bool

    def __repr__(self) -> str:
        return f"{os.path.relpath(self.path)}: {self.question}" + ("" if self.created else " (was there before, unchanged)")

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        name = os.path.relpath(self.path)
        return {"text/plain": repr(self), "text/markdown": repr(self).replace(name, f"[{name}](<{name}>)", 1)}


def open(name: str, *, folder: str | Path = ".") -> Notebook:
    """Write a recipe as a notebook, and return its place, in JupyterLab as a link. A file of that name is never overwritten.

    Args:
        name: of the recipe; `list` shows them.
        folder: where; None exists: it is made.

    Raises:
        CallError: there is no such recipe.

    Example:
        >>> import kstreams_repl as ks, tempfile
        >>> ks.recipes.open("deduplicate", folder=tempfile.mkdtemp()).question
        'How do I drop duplicate events?'
    """
    pages = _pages()
    if name not in pages:
        raise CallError(f"there is no recipe {name!r}", hint=did_you_mean(name, pages) or f"there are {', '.join(pages)}", argument="name")
    path = Path(folder).resolve() / f"{name}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("x", encoding="utf-8") as file:
            json.dump(_notebook(pages[name]), file, ensure_ascii=False, indent=1)
    except FileExistsError:
        return Notebook(path, _question(pages[name]), False)
    return Notebook(path, _question(pages[name]), True)


def list() -> Table:
    """Return the names of all recipes, with their questions.

    Example:
        >>> import kstreams_repl as ks
        >>> len(ks.recipes.list()) > 20
        True
    """
    rows = ((name, _question(page)) for name, page in _pages().items())
    return Table.of(("name", "question"), rows, note='ks.recipes.open("deduplicate") writes one as a notebook into this folder')


def _pages() -> dict[str, str]:
    pages = sorted((docs_folder() / "recipes").glob("*.md"))
    return {page.stem: page.read_text(encoding="utf-8") for page in pages if page.stem != "README"}


def _question(page: str) -> str:
    return page.partition("\n")[0].removeprefix("# ")


def _notebook(page: str) -> JsonObject:
    """Return the notebook of a page (nbformat 4.5). Its links, which lead nowhere from another folder, become names."""
    text = _RECIPE_LINK.sub(r'\1 (`ks.recipes.open("\2")`)', _DOCS_LINK.sub(r"\1 (`docs/\2`)", page))
    cells = []
    for number, part in enumerate(_EXAMPLES.split(text)):  # text and examples in turn
        kind: JsonObject = {"cell_type": "markdown"}
        if number % 2:
            part = "\n".join(example.source.rstrip("\n") for example in DocTestParser().get_examples(part))
            kind = {"cell_type": "code", "execution_count": None, "outputs": []}
        cells.append(kind | {"id": f"cell-{number}", "metadata": {}, "source": part.strip()})
    python = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": python}, "nbformat": 4, "nbformat_minor": 5}
