"""Recipes: each page has the parts that a reader looks for, and opens as a notebook that runs. tests/unit/test_docs.py runs the pages."""

from __future__ import annotations

import doctest
import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kstreams_repl as ks
from workshop.commands.docs_hooks import on_page_markdown
from workshop.commands.try_it import NOT_IN_A_TAB

ROOT = Path(__file__).resolve().parents[3]
PAGES = {page.stem: page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs" / "recipes").glob("*.md")) if page.stem != "README"}
recipes = pytest.mark.parametrize(("name", "page"), PAGES.items(), ids=PAGES)
ASKED = {
    "average", "min", "max", "top", "distinct", "deduplicate", "sliding", "hopping", "session", "final", "table", "foreign", "lookup",
    "cogroup", "routing", "expire", "reorder", "enrich", "dead", "schema", "backfill", "rate", "absence", "heavy", "unit", "cdc",
}  # fmt: skip


def opened(name: str, folder: Path) -> Any:
    import nbformat

    return nbformat.read(ks.recipes.open(name, folder=folder).path, as_version=4)


def test_each_question_that_people_ask_has_its_recipe() -> None:
    assert ASKED <= {word for name in PAGES for word in name.split("-")}
    assert [row[0] for row in ks.recipes.list().rows] == list(PAGES)
    assert all(question.endswith("?") for _, question in ks.recipes.list().rows)


@recipes
def test_a_recipe_has_a_topology_a_table_a_check_and_its_deploy_on_one_screen(name: str, page: str) -> None:
    examples = doctest.DocTestParser().get_examples(page)
    assert re.search(r"^Topology\(\d+ nodes", page, re.MULTILINE)
    assert any("─" in example.want for example in examples), "a table of results"
    assert "assert " in page and re.search(r"^Deploy: `session\.", page, re.MULTILINE)
    assert len(page.splitlines()) <= 100 and "## Why, and what to watch" in page


@recipes
def test_only_the_last_line_of_a_block_shows_something(name: str, page: str) -> None:
    """A notebook shows nothing else of a cell; what is printed may stand anywhere."""
    for block in re.findall(r"^```python\n(>>> .*?)^```", page, re.MULTILINE | re.DOTALL):
        shown = [example for example in doctest.DocTestParser().get_examples(block)[:-1] if example.want]
        assert not [example.source for example in shown if "print(" not in example.source]


@recipes
def test_a_notebook_has_the_pages_examples_and_runs(name: str, page: str, tmp_path: Path) -> None:
    notebook = opened(name, tmp_path)
    import nbformat

    nbformat.validate(notebook)
    assert notebook.cells[0].source.startswith(page.partition("\n")[0])
    sources = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    wanted = [example.source.rstrip("\n") for example in doctest.DocTestParser().get_examples(page)]
    assert "\n".join(sources) == "\n".join(wanted)
    names: dict[str, Any] = {}
    for source in sources:
        exec(source, names)
    assert not re.search(r"\]\(", "".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")), "a link leads nowhere"


def shown_in_the_site(name: str, try_it: bool = False) -> str:
    file = SimpleNamespace(src_uri=f"recipes/{name}.md", name="index" if name == "README" else name)
    text = (ROOT / "docs" / file.src_uri).read_text(encoding="utf-8")
    return on_page_markdown(text, SimpleNamespace(file=file, meta={}), SimpleNamespace(extra={"try_it": try_it}), None)


@recipes
def test_the_site_shows_its_picture(name: str, page: str) -> None:
    assert shown_in_the_site(name).count('src="data:image/svg+xml;base64,') == 1


def test_only_a_site_with_notebooks_links_to_them_and_says_which_recipe_has_none() -> None:
    link = '<a class="md-button" href="../lite/notebooks/index.html?path=cdc.ipynb">Try it in your browser</a>'
    assert link in shown_in_the_site("cdc", try_it=True) and link not in shown_in_the_site("cdc")
    for name, reason in NOT_IN_A_TAB.items():
        page = shown_in_the_site(name, try_it=True)
        assert reason in page and "../lite/" not in page and reason not in shown_in_the_site(name)


def test_the_index_of_recipes_has_no_picture() -> None:
    """The site did not build: mkdocs calls a README `index`."""
    assert "data:image" not in shown_in_the_site("README")


def test_a_notebook_that_is_there_is_not_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = ks.recipes.open("cdc")
    assert first.created and "(<cdc.ipynb>)" in first._repr_mimebundle_()["text/markdown"]
    first.path.write_text("edited", encoding="utf-8")
    second = ks.recipes.open("cdc")
    assert not second.created and repr(second).endswith("(was there before, unchanged)")
    assert first.path.read_text(encoding="utf-8") == "edited"


def test_an_unknown_recipe_is_an_error_with_the_closest_name(tmp_path: Path) -> None:
    with pytest.raises(ks.errors.CallError, match="did you mean 'deduplicate'"):
        ks.recipes.open("dedupe", folder=tmp_path)
    assert not os.listdir(tmp_path)


@pytest.mark.slow
@pytest.mark.integration
@recipes
def test_a_notebook_shows_picture_and_table_in_a_kernel(name: str, page: str, tmp_path: Path) -> None:
    from nbclient import NotebookClient

    notebook = opened(name, tmp_path)
    client = NotebookClient(notebook, timeout=60, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}})
    client.execute(env={**os.environ, "PYTHONPATH": str(ROOT), "JUPYTER_PREFER_ENV_PATH": "1"})
    html = [output["data"].get("text/html", "") for cell in notebook.cells for output in cell.get("outputs", ()) if "data" in output]
    assert sum("data:image/svg+xml;base64," in one for one in html) == 1 and any("<table" in one for one in html)
