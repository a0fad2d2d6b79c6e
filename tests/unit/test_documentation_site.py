"""The documentation as a site: it builds strictly, needs no other host, links to code lead to the right lines, pictures are current."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from workshop.commands import defaults_page, package_pictures, topology_pictures
from workshop.commands.docs_hooks import api_pages, api_reference, code_links, line_of

ROOT = Path(__file__).resolve().parents[2]
ARCHITECTURE = (ROOT / "docs" / "design" / "architecture.md").read_text(encoding="utf-8")
NO_NETWORK = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9", "NO_MKDOCS_2_WARNING": "1"}
_FETCHED = re.compile(r'<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)="(?:https?:)?//[^"]*"')
_LINE = re.compile(r'href="(?:\.\./)*(source/[^"#]+)#(__codelineno-0-(\d+))"[^>]*><code>([\w.]+)</code>')


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_site_builds_strictly_without_a_network_and_its_links_lead_to_the_lines_they_name(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **NO_NETWORK}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    fetched = [hit for page in tmp_path.rglob("*.html") for hit in _FETCHED.findall(page.read_text(encoding="utf-8"))]
    assert fetched == []
    front_page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert (tmp_path / "search/search_index.js").stat().st_size > 100_000, "the search of a page that is opened from the disk"
    assert '<script src="assets/iframe-worker.js">' in front_page and (tmp_path / "assets/iframe-worker.js").is_file()
    links = _LINE.findall((tmp_path / "design" / "architecture.html").read_text(encoding="utf-8"))
    assert len(links) == len(code_links(ARCHITECTURE)) > 25
    for page, anchor, number, name in links:
        file = ROOT / page.removeprefix("source/").removesuffix(".html")
        line = file.read_text(encoding="utf-8").splitlines()[int(number) - 1]
        assert re.match(rf"\s*(?:def|class) {name.rpartition('.')[2]}\b", line), (page, number, name, line)
        assert f'id="{anchor}"' in (tmp_path / page).read_text(encoding="utf-8")
    for door, page in api_pages().items():
        reference = (tmp_path / page).with_suffix(".html").read_text(encoding="utf-8")
        missing = [path for path in re.findall(r"^::: (\S+)", api_reference(door), re.MULTILINE) if f'id="{path}"' not in reference]
        assert missing == []


@pytest.mark.parametrize(("name", "file"), code_links(ARCHITECTURE))
def test_a_file_that_the_architecture_links_to_defines_the_name(name: str, file: str) -> None:
    assert line_of(file, name) > 0


def test_every_link_to_code_is_one_that_the_site_leads_to_a_line() -> None:
    """A link whose text is no name stays as it is, and the strict build ends at it."""
    pages = {str(page): page.read_text(encoding="utf-8") for page in (ROOT / "docs").rglob("*.md")}
    files = {name: re.findall(r"\]\((?:\.\./)+(k\w+/[\w/]+\.py)\)", text) for name, text in pages.items()}
    assert {name: [file for _, file in code_links(text)] for name, text in pages.items()} == files


def test_a_name_that_is_not_defined_is_an_error() -> None:
    with pytest.raises(LookupError, match="StreamTask.fly is not defined"):
        line_of("kstreams_repl/engine/runtime/task.py", "StreamTask.fly")


def test_the_page_of_defaults_is_current() -> None:
    written = defaults_page.PAGE.read_text(encoding="utf-8")
    assert written == defaults_page.page(), "a default or its meaning changed: python -m workshop.commands.defaults_page"


def test_the_pictures_of_the_packages_and_of_the_pages_topologies_are_current() -> None:
    for file, picture in (package_pictures.pictures() | topology_pictures.pictures()).items():
        assert file.read_text(encoding="utf-8") == picture, f"{file.name} is out of date: ./kstreams docs --pictures draws it again"


def test_each_of_the_eight_concepts_is_a_short_page_with_the_picture_of_its_own_example() -> None:
    """Time has a ninth page, late records, for what the numbers of an application say."""
    pages = {page.stem: page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "concepts").glob("*.md")}
    del pages["late-records"]
    assert sorted(pages) == ["editing", "exactly-once", "joins", "partitions", "spark", "state", "streams-and-tables", "time"]
    for name, text in pages.items():
        prose = re.sub(r"^```[\s\S]*?^```$|\]\([^)]*\)", "", text, flags=re.MULTILINE)
        assert topology_pictures.LINK.findall(text) == [f"concept-{name}.svg"]
        assert 150 <= len(prose.split()) <= 350, name
