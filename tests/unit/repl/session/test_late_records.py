"""Records that were dropped as late are named where one looks: how many, by which node, and the grace that keeps them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kstreams_repl import SessionWindows, SlidingWindows, StreamsBuilder, TimeWindows, Topology
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.host.instance.alignment_rules import late_reasons
from kstreams_repl.repl.session.views.counts.record_counts import late_lines, late_text
from kstreams_repl.reports import Counts, NodeRate
from tests.unit.engine.runtime.rig import Rig
from workshop.commands.topology_pictures import drawn, passed

ROOT = Path(__file__).resolve().parents[4]
HOUR = 3_600_000


def windowed(windows: Any) -> Topology:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().windowed_by(windows).count(store="counts", retention=10 * HOUR)
    return builder.build()


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda grace: TimeWindows.of_size(HOUR, grace=grace), 3 * HOUR + 1),
        (lambda grace: SessionWindows.of_inactivity_gap(HOUR, grace=grace), 3 * HOUR - 10),
        (lambda grace: SlidingWindows.of_time_difference(HOUR, grace=grace), 4 * HOUR - 10),
    ],
)
def test_the_grace_that_a_node_names_is_the_smallest_that_keeps_the_record(make: Any, expected: int) -> None:
    def dropped(grace: int) -> tuple[int, int]:
        rig = Rig(windowed(make(grace)))
        rig.pipe("in", ("a", 1, 5 * HOUR), ("a", 1, HOUR + 10)).run()
        [count] = [count for count in rig.task.counts.read().values() if count.dropped] or [None]
        return (0, 0) if count is None else (sum(count.dropped.values()), count.needed_grace_ms)

    late, grace = dropped(0)
    assert late and grace == expected
    assert dropped(grace) == (0, 0)
    assert dropped(grace - 1)[0]


def test_a_line_names_the_node_the_number_and_the_grace() -> None:
    counts = Counts({
        "hours": NodeRate(1_000, 196, dropped={"expired window": 804, "null key": 1}, needed_grace_ms=26 * HOUR + 1),
        "other": NodeRate(5, 0, dropped={"null key": 5}),
    })
    assert late_lines(counts) == ["hours: 804 records late: a grace of 27 h keeps them, docs/concepts/late-records.md"]
    assert late_lines(counts, ["other"]) == []
    assert str(counts.table()).count("804 records late") == 1


def test_a_count_that_came_from_a_commit_has_no_grace() -> None:
    assert late_text(NodeRate(9, 8, dropped={"expired": 1})) == "1 record late"


def test_what_alignment_cannot_keep_is_found_before_it_runs() -> None:
    def rekeyed(**config: Any) -> dict[str, str]:
        builder = StreamsBuilder()
        grouped = builder.stream("in").select_key(lambda key, value: "k").group_by_key()
        grouped.windowed_by(TimeWindows.of_size(HOUR)).count(store="hours")
        settings = StreamsConfig({"application.id": "app"}, **config)
        return late_reasons(builder.build().subtopologies(), settings, {"in": 4})

    assert rekeyed() == {}
    [why] = rekeyed(repl_alignment_drift_ms=-1).values()
    assert "alignment is off" in why


def test_a_stream_that_is_re_keyed_twice_and_meets_one_that_is_re_keyed_once_is_found() -> None:
    builder = StreamsBuilder()
    once = builder.stream("one").select_key(lambda key, value: "k").repartition()
    twice = builder.stream("two").select_key(lambda key, value: "k").repartition().select_key(lambda key, value: "l").repartition()
    once.merge(twice).group_by_key().windowed_by(TimeWindows.of_size(HOUR)).count(store="hours")
    reasons = late_reasons(builder.build().subtopologies(), StreamsConfig({"application.id": "app"}), {"one": 4, "two": 4})
    assert list(reasons.values()) == ["its records have passed different numbers of repartitions"]


def picture() -> str:
    """The picture of docs/concepts/late-records.md: a day of one partition is counted, and then the same day of another one."""
    builder = StreamsBuilder()
    grouped = builder.stream("flights").select_key(lambda key, value: value, name="by-airport").group_by_key()
    grouped.windowed_by(TimeWindows.of_size(HOUR)).count(store="hours", name="count-hours").to_stream().to("departures")
    topology = builder.build()
    rig = Rig(topology, part=1)
    [inner] = {at.topic for at in rig.inputs}
    rows = [("JFK", 1, minute * 60_000) for minute in range(0, 1_440, 3)]
    rig.pipe(inner, *rows).run()
    rig.pipe(inner, *rows).run()
    return drawn(topology, title="departures", marks=passed(rig.task.counts.read()))


def test_the_picture_of_the_page_is_drawn_by_the_code() -> None:
    file = ROOT / "docs" / "pictures" / "late-records.svg"
    assert file.read_text(encoding="utf-8").strip() == picture().strip(), f"python -m {__name__} > {file.relative_to(ROOT)}"


if __name__ == "__main__":
    print(picture(), end="")
