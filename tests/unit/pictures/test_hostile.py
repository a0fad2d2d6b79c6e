"""R23, what is shown: hostile texts in every place that a user's data can reach stay text in every form of output."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from kstreams_repl.engine.topology.nodes import Origin
from kstreams_repl.pictures.graph.arrange import room_for
from kstreams_repl.pictures.graph.graphviz import to_graphviz
from kstreams_repl.pictures.graph.mimebundle import mimebundle
from kstreams_repl.pictures.graph.picture import Cluster, Kind, Link, Mark, Picture, Shape
from kstreams_repl.pictures.graph.svg import svg_of
from kstreams_repl.pictures.table import Table
from kstreams_repl.repl.session.topics.records import ReadRecord, Records

CORPUS: dict[str, list[str]] = json.loads((Path(__file__).resolve().parents[2] / "data" / "hostile.json").read_text())
TEXTS = [text for kind, texts in CORPUS.items() if kind != "huge" for text in texts] + [text * 20_000 for text in CORPUS["huge"]]
OUR_TAGS = {
    "svg", "title", "style", "defs", "marker", "path", "rect", "g", "text", "div", "table", "thead", "tbody", "tr", "th", "td", "caption",
    "img", "pre", "b",
}  # fmt: skip
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\U000e0000-\U000e007f]")


class Reader(HTMLParser):
    """What a browser would make of it: every tag and attribute."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attributes

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def assert_inert(html: str) -> None:
    read = Reader(html)
    assert {tag.lower() for tag in read.tags} <= OUR_TAGS
    for name, value in read.attributes:
        assert not name.lower().startswith("on"), name
        if name in ("href", "src", "xlink:href"):
            assert value is not None and (value.startswith("data:image/svg+xml;base64,") or value.startswith("#")), value
    assert not CONTROL.search(html)
    for data in re.findall(r"data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)", html):
        assert_inert_svg(base64.b64decode(data).decode())


def assert_inert_svg(svg: str) -> None:
    root = ElementTree.fromstring(svg)  # well-formed, so nothing has broken out of its place
    assert {element.tag.rpartition("}")[2] for element in root.iter()} <= OUR_TAGS
    assert not [name for element in root.iter() for name in element.attrib if name.lower().startswith("on")]


def picture_with(text: str) -> Picture:
    name = text[:1000]  # Kafka's are shorter, and made of other characters
    shapes = tuple(
        Shape(f"{kind}:{name}", kind, name, text, None if kind is Kind.TOPIC else 0, Origin(file=text, line=3, cell=text)) for kind in Kind
    )
    links = tuple(Link(shapes[0].id, shape.id, state=shape.kind is Kind.STORE) for shape in shapes[1:])
    marks = {shape.id: Mark("failed", (text, text)) for shape in shapes}
    return Picture(text, shapes, links, (Cluster(0, text),), marks)


@pytest.fixture(params=range(len(TEXTS)), ids=lambda index: f"{index}")
def text(request: pytest.FixtureRequest) -> Iterator[str]:
    yield TEXTS[request.param]


def test_the_corpus_is_what_it_says() -> None:
    assert len(CORPUS["xss"]) >= 50
    assert {"xss", "ansi", "bidi", "nul", "quotes", "paths", "huge"} <= set(CORPUS)


def test_svg_and_html_of_a_picture_are_inert(text: str) -> None:
    picture = picture_with(text)
    assert_inert_svg(svg_of(picture))
    assert_inert_svg(svg_of(picture, room=room_for(picture)))
    shown = mimebundle(picture, text, note=text)
    assert_inert(shown["text/html"])
    assert not CONTROL.search(shown["text/plain"])
    assert len(shown["text/html"]) < 300_000


def test_tables_are_inert_and_bounded(text: str) -> None:
    for value in (text, text.encode("utf-8", "surrogatepass"), [text], {text: text}, (text,), Exception(text)):
        table = Table.of((text, "plain"), [(value, value)], note=text, title=text)
        assert_inert(table.html())
        assert not CONTROL.search(table.text())
        assert len(table.text()) < 40_000 and len(table.html()) < 60_000
    cells = Table.of(("c",), [(text,)])
    assert len(cells.text()) < 4_000 and len(cells.html()) < 8_000


def test_records_are_inert(text: str) -> None:
    records = Records([ReadRecord(text, text, 0, text, 0, 0, [(text, text.encode("utf-8", "surrogatepass"))])], note=text, title=text)
    shown: Any = records._repr_mimebundle_()
    assert_inert(shown["text/html"])
    assert not CONTROL.search(shown["text/plain"]) and not CONTROL.search(repr(records))


def test_graphviz_quotes_every_label(text: str) -> None:
    source = to_graphviz(picture_with(text[:2000])).source
    assert not CONTROL.search(source.replace("\t", ""))
    drawn = [line for line in source.splitlines() if not line.startswith("// ")]  # the title is a comment, on one line
    assert drawn[0] == "digraph {"
    inside = re.sub(r'"(?:[^"\\]|\\.)*"', "", "\n".join(drawn))
    assert not re.search(r"[<>]|javascript|pwned", inside.replace("->", "").replace("//", ""))
