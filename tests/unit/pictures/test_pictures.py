from __future__ import annotations

import base64
import re
import xml.etree.ElementTree as ET
from types import SimpleNamespace
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.pictures.graph.arrange import arrange, characters_in
from kstreams_repl.pictures.graph.graphviz import to_graphviz
from kstreams_repl.pictures.graph.mimebundle import mimebundle
from kstreams_repl.pictures.graph.picture import Kind, Mark, picture_of
from kstreams_repl.pictures.graph.svg import svg_of
from kstreams_repl.repl.session.views.picture import picture_overlay
from tests.unit.pictures.test_markup import XSS

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def builder() -> ks.StreamsBuilder:
    builder = ks.StreamsBuilder()
    words = builder.stream("words", key_serde="string", value_serde="string")
    counts = words.group_by(lambda key, word: word).count(store="counts")
    counts.to_stream().to("word-counts", name="out")
    words.filter(lambda key, word: len(word) > 9, name="long").to("long-words")
    return builder


def shown(html: str) -> ET.Element:
    found = re.search(r"data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)", html)
    assert found is not None
    return ET.fromstring(base64.b64decode(found.group(1)))


def test_a_picture_has_topics_nodes_stores_and_clusters(builder: ks.StreamsBuilder) -> None:
    picture = picture_of(builder.build())
    kinds = {kind: sorted(shape.name for shape in picture.shapes if shape.kind is kind) for kind in Kind}
    assert kinds[Kind.TOPIC] == ["long-words", "word-counts", "words"]
    assert kinds[Kind.INTERNAL_TOPIC] == ["counts-repartition"]
    assert kinds[Kind.STORE] == ["counts"]
    assert {"out", "long"} <= {shape.name for shape in picture.shapes}
    assert [cluster.label for cluster in picture.clusters] == ["sub-topology 0", "sub-topology 1"]


def test_shapes_of_a_cluster_lie_in_its_block_and_topics_outside_all(builder: ks.StreamsBuilder) -> None:
    arranged = arrange(picture_of(builder.build()))
    blocks = dict(arranged.blocks)
    for placed in arranged.shapes:
        for number, (left, top, width, height) in blocks.items():
            inside = left <= placed.x <= left + width and top <= placed.y <= top + height
            assert inside == (placed.shape.cluster == number)


def test_every_link_runs_from_its_source_to_its_target(builder: ks.StreamsBuilder) -> None:
    arranged = arrange(picture_of(builder.build()))
    at = {placed.shape.id: placed for placed in arranged.shapes}
    for link, route in arranged.routes:
        for end, shape in ((route[0], at[link.source]), (route[-1], at[link.target])):
            assert abs(end[0] - shape.x) <= shape.width / 2 + 1
            assert abs(end[1] - shape.y) <= shape.height / 2 + 1


def test_svg_is_well_formed_and_names_every_node(builder: ks.StreamsBuilder) -> None:
    picture = picture_of(builder.build())
    drawn = ET.fromstring(svg_of(picture))
    groups = [group for group in drawn.iter(f"{SVG}g") if group.get("data-node")]
    assert {group.get("data-node") for group in groups} == {shape.id for shape in picture.shapes}
    assert all(group.get("tabindex") == "0" and group.get("aria-label") for group in groups)


@pytest.mark.parametrize(
    ("state", "sign"), [("running", "▶"), ("paused", "‖"), ("failed", "✖"), ("stale", "✎"), ("restoring", "⟳")]
)
def test_a_state_shows_by_class_sign_and_word(builder: ks.StreamsBuilder, state: str, sign: str) -> None:
    drawn = ET.fromstring(svg_of(picture_of(builder.build(), marks={"node:long": Mark(state, ("12 records/s",))})))
    group = next(group for group in drawn.iter(f"{SVG}g") if group.get("data-node") == "node:long")
    assert f"is-{state}" in (group.get("class") or "").split()
    texts = [text.text for text in group.iter(f"{SVG}text")]
    assert f"{sign} {state}" in texts
    assert "12 records/s" in texts


def test_the_state_of_all_is_on_no_box_but_a_failure_is(builder: ks.StreamsBuilder) -> None:
    def texts(state: str) -> list[str | None]:
        drawn = ET.fromstring(svg_of(picture_of(builder.build(), marks={"node:long": Mark(state)}, state=state)))
        group = next(group for group in drawn.iter(f"{SVG}g") if group.get("data-node") == "node:long")
        return [text.text for text in group.iter(f"{SVG}text")]

    assert not any("running" in (text or "") for text in texts("running"))
    assert "✖ failed" in texts("failed")


def test_numbers_change_without_a_new_layout(builder: ks.StreamsBuilder) -> None:
    topology = builder.build()
    first = arrange(picture_of(topology, marks={"node:long": Mark("running", ("1",))}))
    second = arrange(picture_of(topology, marks={"node:long": Mark("paused", ("2",))}))
    assert first is second


def test_evaluating_a_builder_gives_its_text_and_its_picture(builder: ks.StreamsBuilder) -> None:
    bundle = builder._repr_mimebundle_()  # type: ignore[attr-defined]
    assert bundle["text/plain"].startswith("Topologies:\n   Sub-topology: 0\n")
    names = [text.text for text in shown(bundle["text/html"]).iter(f"{SVG}text")]
    assert {"counts", "words", "long"} <= set(names)


def test_a_stream_is_marked_in_the_picture_of_its_topology() -> None:
    builder = ks.StreamsBuilder()
    stream = builder.stream("words").filter(lambda key, word: True, name="here-it-is")
    bundle: dict[str, Any] = stream._repr_mimebundle_()  # type: ignore[operator]
    group = next(g for g in shown(bundle["text/html"]).iter(f"{SVG}g") if g.get("data-node") == "node:here-it-is")
    assert "◀ here" in [text.text for text in group.iter(f"{SVG}text")]


def test_an_incomplete_builder_shows_what_there_is_and_what_is_missing() -> None:
    builder = ks.StreamsBuilder()
    with builder.cell("first"):
        words = builder.stream("words")
    with builder.cell("second"):
        words.to("copy")
    builder.remove_cell("first")
    bundle = builder._repr_mimebundle_()  # type: ignore[attr-defined]
    assert "not in the picture: to()" in bundle["text/plain"]


def test_a_builder_that_cannot_be_built_says_why_instead_of_raising() -> None:
    builder = ks.StreamsBuilder()
    stream = builder.stream("words")
    stream.filter(lambda key, word: True, name="twice")
    stream.filter(lambda key, word: True, name="twice")
    bundle = builder._repr_mimebundle_()  # type: ignore[attr-defined]
    assert "cannot be built yet" in bundle["text/plain"]
    assert "twice" in bundle["text/html"]


def test_graphviz_quotes_whatever_is_in_a_name() -> None:
    builder = ks.StreamsBuilder()
    builder.stream("a.b-c_d").to("x.y")
    source = to_graphviz(picture_of(builder.build())).source
    assert "cluster_0" in source
    assert 'label="a.b-c_d"' in source


@pytest.mark.parametrize("hostile", [*XSS, "\x1b[2Jgone", "\u202egnp.exe", "x" * 100_000])
def test_hostile_text_in_a_picture_is_inert(builder: ks.StreamsBuilder, hostile: str) -> None:
    picture = picture_of(builder.build(), title=hostile, marks={"node:long": Mark("failed", (hostile[:200],))})
    bundle = mimebundle(picture, hostile, note=hostile)
    drawn = shown(bundle["text/html"])
    assert {element.tag.removeprefix(SVG) for element in drawn.iter()} <= {
        "svg", "title", "style", "defs", "marker", "path", "rect", "g", "text",
    }  # fmt: skip
    assert not any(name.lower().startswith("on") for element in drawn.iter() for name in element.attrib)
    tags = set(re.findall(r"<\s*/?\s*([a-zA-Z]+)", bundle["text/html"]))
    assert tags <= {"div", "style", "img"}
    assert "\x1b" not in bundle["text/plain"] and "\u202e" not in bundle["text/plain"]


@pytest.mark.parametrize(("taken", "given"), [(336_776, 328_521), (999_999, 999_998), (123_456_789, 98_765_432)])
def test_a_box_holds_what_its_node_took_and_gave(taken: int, given: int) -> None:
    """ "336,776 in, 328,521 …" stood in the first notebook."""
    picture = picture_of(ks.Topology().add_source("s", "in").add_processor("p", lambda: None, "s"), title="t")
    box = next(shape for shape in picture.shapes if shape.id == "node:p")
    node: Any = SimpleNamespace()
    known: Any = SimpleNamespace(records=taken, given=given)
    line = picture_overlay._passed(node, known, below=True)
    assert len(line) <= characters_in(box, 4), line
