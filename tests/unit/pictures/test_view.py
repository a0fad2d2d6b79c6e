from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

import kstreams_repl as ks
from kstreams_repl.pictures.graph.mimebundle import mimebundle
from kstreams_repl.pictures.graph.picture import Kind, Mark, Picture, picture_of
from kstreams_repl.pictures.graph.svg import line_width, svg_of
from kstreams_repl.pictures.graph.view import View, link_rates, simplified, summary_of
from tests.unit.pictures.test_pictures import SVG, shown


@pytest.fixture
def picture() -> Picture:
    """A user's filter right before a repartitioning, one that is named, and a re-keyed table."""
    builder = ks.StreamsBuilder()
    words = builder.stream("words").filter(lambda key, word: True)
    words.group_by(lambda key, word: word).count().to_stream().to("counts")
    words.select_key(lambda key, word: word).repartition(name="by-word").to("copy")
    builder.table("people").group_by(lambda key, person: (person, person)).count(store="per-person")
    found = picture_of(builder.build(), title="words", state="running")
    nodes = [shape for shape in found.shapes if shape.id.startswith("node:")]
    rate = {Kind.SOURCE: 100.0, Kind.PROCESSOR: 10.0, Kind.SINK: 10.0}
    return replace(found, marks={shape.id: Mark("running", ("7 records",), rate[shape.kind], 3) for shape in nodes})


def kinds(picture: Picture) -> dict[Kind, int]:
    return {kind: sum(shape.kind is kind for shape in picture.shapes) for kind in Kind}


def test_a_repartitioning_is_one_edge_with_its_lag(picture: Picture) -> None:
    drawn = simplified(picture)
    assert kinds(drawn)[Kind.REPARTITION] == 3 and kinds(drawn)[Kind.INTERNAL_TOPIC] == 0
    users = [shape.label for shape in drawn.shapes if shape.cluster == 0 or "filter" in shape.label]
    assert users.count("filter") == 1, "the user's own is kept, those that repartitioning puts before its sinks are not"
    named = next(shape for shape in drawn.shapes if shape.name == "by-word-repartition")
    (before,) = [link.source for link in drawn.links if link.target == named.id]
    (after,) = [link.target for link in drawn.links if link.source == named.id]
    assert "KEY-SELECT" in before and "SINK" in after
    assert drawn.marks[named.id] == Mark("running", ("lag 3",), 100.0, 3)
    assert simplified(picture, View(repartitions=True, names=True)) == picture


@pytest.mark.parametrize("whole", ["running", "failed"])
def test_a_failure_in_what_is_folded_is_told(picture: Picture, whole: str) -> None:
    sink = next(shape for shape in picture.shapes if shape.name == "by-word-repartition-sink")
    failing = replace(picture, state=whole, marks={**picture.marks, sink.id: Mark("failed", ("no broker",))})
    drawn = simplified(failing)
    assert drawn.marks["topic:by-word-repartition"].state == "failed"
    assert drawn.marks["topic:by-word-repartition"].lines == ("no broker",)
    folded = simplified(failing, View(repartitions=True, collapsed=frozenset({sink.cluster or 0})))
    assert folded.marks[f"part:{sink.cluster}"].state == "failed"


def test_a_sub_topology_is_one_box_with_its_sources_numbers(picture: Picture) -> None:
    drawn = simplified(picture, View(collapsed=frozenset({0, 99})))
    box = next(shape for shape in drawn.shapes if shape.kind is Kind.SUBTOPOLOGY)
    assert (box.name, box.detail) == ("sub-topology 0", "4 nodes") and all(cluster.id != 0 for cluster in drawn.clusters)
    assert drawn.marks[box.id] == Mark("running", ("100 records/s", "lag 3"), 100.0, 3)
    assert {link.target for link in drawn.links if link.source == box.id} == {
        shape.id for shape in drawn.shapes if shape.kind is Kind.REPARTITION and shape.name[0] in "Kb" and "KTABLE" not in shape.name
    }
    every = frozenset(cluster.id for cluster in picture.clusters)
    assert kinds(simplified(picture, View(collapsed=every)))[Kind.PROCESSOR] == 0
    assert summary_of(picture, View(collapsed=every))["collapsed"] == len(every)


def test_generated_names_come_without_their_numbers_and_own_names_stay(picture: Picture) -> None:
    texts = [text.text or "" for text in ET.fromstring(svg_of(simplified(picture))).iter(f"{SVG}text")]
    assert not any(re.search(r"\d{10}", text) for text in texts), texts
    assert {"words", "per-person", "by-word-repartition", "filter", "select key", "table source"} <= set(texts)
    titles = [title.text or "" for title in ET.fromstring(svg_of(simplified(picture))).iter(f"{SVG}title")]
    assert any("KSTREAM-FILTER-0000000001" in title for title in titles), "a tooltip has it"
    assert any("0000000001" in (text.text or "") for text in ET.fromstring(svg_of(picture)).iter(f"{SVG}text"))


def test_what_all_do_is_said_once(picture: Picture) -> None:
    node = next(shape.id for shape in picture.shapes if shape.kind is Kind.PROCESSOR)
    stale = replace(picture, marks={**picture.marks, node: Mark("stale")})
    texts = [text.text for text in shown(mimebundle(stale, "words")["text/html"]).iter(f"{SVG}text")]
    assert "▶ running" not in texts and "✎ stale" in texts and "words" in texts


def test_a_link_is_as_thick_as_what_passes_it(picture: Picture) -> None:
    rates = dict(zip(picture.links, link_rates(picture), strict=True))
    for link, rate in rates.items():
        if link.state:
            assert rate is None
        elif link.target.startswith("node:"):
            assert rate == picture.marks[link.target].rate
        else:
            assert rate == picture.marks[link.source].rate, "what a sink takes goes to its topic"
    widths = [line_width(rate) for rate in (None, 0.0, 1.0, 100.0, 1e9)]
    assert widths == sorted(widths) and widths[-1] < 8
    merged = ks.StreamsBuilder()
    merged.stream("a", name="a").map_values(lambda v: v, name="m").merge(merged.stream("b", name="b"), name="both").to("c")
    two = picture_of(merged.build())
    marked = replace(two, marks={name: Mark(None, (), 5.0) for name in ("node:a", "node:m", "node:b", "node:both")})
    found = {(link.source, link.target): rate for link, rate in zip(marked.links, link_rates(marked), strict=True)}
    assert found["node:b", "node:both"] == 5.0 and found["node:m", "node:both"] is None, "what a node lets through is not what enters it"
