"""What the documentation build adds to docs/: source pages for links to code, the API reference, navigation, pages of the root
folder.

A page of docs/ links to code by file and by name, ``[StreamTask.process](../kstreams_repl/engine/runtime/task.py)``, which works in an
editor and on a forge. In the site the link leads to the line of the current definition, on a page with the file's text; since no
line number is written in docs/, none can be out of date.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from doctest import DocTestParser
from pathlib import Path
from typing import Any

from kstreams_repl.pictures.graph.mimebundle import html_of
from kstreams_repl.pictures.graph.picture import Kind, Link, Picture, Shape, picture_of
from kstreams_repl.pictures.graph.svg import svg_of
from kstreams_repl.system.facade import doors, exports
from workshop.commands import try_it

ROOT = Path(__file__).resolve().parents[2]
ROOT_PAGES = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
CODE_LINK = re.compile(r"\[`?([\w.]+)(?:\(\))?`?\]\((?:\.\./)+(k\w+/[\w/]+\.py)\)")
STATES = re.compile(r"^```mermaid\nstateDiagram-v2\n(.*?)^```$", re.DOTALL | re.MULTILINE)
TRANSITION = re.compile(r"^\s*(\w+) --> (\w+)$", re.MULTILINE)
SHOWN_TOPOLOGY = re.compile(r"^Topology\(.*\)\n```\n", re.MULTILINE)
BEHIND_OTHERS = re.compile(r"design/|C\w+\.md|reference/(api|benchmarks|nexmark|theodolite|reliability)")
"""Pages that are looked up by name: in a search they come after those that answer questions."""
FOLDERS = {"Recipes": "recipes", "Operators": "reference/operators", "Design notes": "design"}


def line_of(file: str, name: str) -> int:
    """Return the line where a dotted name is defined.

    Raises:
        LookupError: the file does not define it.
    """
    node: Any = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    for part in name.split("."):
        kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        node = next((child for child in node.body if isinstance(child, kinds) and child.name == part), None)
        if node is None:
            raise LookupError(f"{name} is not defined in {file}")
    line: int = node.lineno
    return line


def code_links(text: str) -> list[tuple[str, str]]:
    """Return (name, file) of each link to code."""
    return CODE_LINK.findall(text)


def api_pages() -> dict[str, str]:
    """Return the page of each facade, by its name."""
    return {door: f"reference/{'-'.join(['api', *door.split('.')[1:]])}.md" for door in doors("kstreams_repl")}


def api_reference(door: str) -> str:
    """Return the Markdown in which mkdocstrings inserts the docstrings of all names of a facade; other facades have their own
    pages."""
    paths = []
    for name, place in exports(door).items():
        value = getattr(importlib.import_module(door), name)
        if inspect.ismodule(value):
            path = value.__name__
        elif hasattr(value, "__qualname__"):
            path = f"{value.__module__}.{value.__qualname__}"
        else:  # a union of types has no __name__
            path = f"{place}.{name}"
        paths += [path] if path not in doors("kstreams_repl") else []
    return "\n## Names\n\n" + "".join(f"::: {path}\n\n" for path in sorted(paths, key=lambda path: path.rpartition(".")[2]))


def drawn_states(diagram: re.Match[str]) -> str:
    """Return a Mermaid state diagram as SVG: forges draw Mermaid, the site has no script for it."""
    transitions = TRANSITION.findall(diagram.group(1))
    states = dict.fromkeys(state for transition in transitions for state in transition)
    links = (Link(source, target) for source, target in transitions if source != target)
    return str(svg_of(Picture("States", tuple(Shape(state, Kind.PROCESSOR, state) for state in states), tuple(links), ())))


def with_picture(recipe: str) -> str:
    """Return a recipe with its picture below the topology that it shows: its examples are run up to there."""
    shown = SHOWN_TOPOLOGY.search(recipe)
    assert shown is not None, "a recipe shows its topology"
    *before, last = DocTestParser().get_examples(recipe[: shown.end()])
    names: dict[str, Any] = {}
    for example in before:
        exec(example.source, names)
    picture = html_of(picture_of(eval(last.source, names)))
    return f"{recipe[: shown.end()]}\n{picture}\n{recipe[shown.end() :]}"


# ---- called by mkdocs


def on_config(config: Any) -> Any:
    fill(config.nav)
    return config


def fill(entries: list[Any]) -> None:
    """List the pages of a folder below the entry of the navigation that stands for it."""
    for entry in entries:
        for title, pages in entry.items() if isinstance(entry, dict) else ():
            if title in FOLDERS:
                entry[title] = sorted(f"{FOLDERS[title]}/{page.name}" for page in (ROOT / "docs" / FOLDERS[title]).glob("*.md"))
            elif isinstance(pages, list):
                fill(pages)


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File, InclusionLevel

    linked = {file for page in (ROOT / "docs").rglob("*.md") for _, file in code_links(page.read_text(encoding="utf-8"))}
    for file in sorted(linked):
        text = (ROOT / file).read_text(encoding="utf-8")
        content = f'---\nsearch:\n  exclude: true\n---\n# {file}\n\n~~~~~python linenums="1"\n{text}~~~~~\n'
        files.append(File.generated(config, f"source/{file}.md", content=content, inclusion=InclusionLevel.NOT_IN_NAV))
    for page in ROOT_PAGES:
        text = (ROOT / page).read_text(encoding="utf-8").replace("](docs/", "](")
        files.append(File.generated(config, page, content=text))
    return files


def on_post_build(config: Any) -> None:
    if config.extra["try_it"]:
        try_it.build(Path(config.site_dir) / "lite")


def on_page_markdown(markdown: str, page: Any, config: Any, files: object) -> str:
    if BEHIND_OTHERS.match(page.file.src_uri):
        page.meta["search"] = {"boost": 0.3}
    for door, path in api_pages().items():
        if page.file.src_uri == path:
            return markdown + api_reference(door)
    if page.file.src_uri == "README.md":
        page.meta["hide"] = ["navigation", "toc"]  # one screen
    if page.file.src_uri.startswith("recipes/") and not page.file.src_uri.endswith("README.md"):
        markdown = with_picture(markdown)
        if config.extra["try_it"]:
            markdown = markdown.replace("\n", f"\n\n{try_it.link(Path(page.file.src_uri).stem)}\n", 1)
    up = "../" * page.file.src_uri.count("/")

    # as HTML, because mkdocs does not know the anchors of code lines and would report dead links; the tests check them
    def resolved(link: re.Match[str]) -> str:
        name, file = link.groups()
        return f'<a href="{up}source/{file}.html#__codelineno-0-{line_of(file, name)}"><code>{name}</code></a>'

    return CODE_LINK.sub(resolved, STATES.sub(drawn_states, markdown))
