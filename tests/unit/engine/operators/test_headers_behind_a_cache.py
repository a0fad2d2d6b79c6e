"""What leaves a cache has the headers of the record that was cached, not of the one that came into the task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kstreams_repl import FixedKeyProcessor, FixedKeyRecord, KStream, SessionWindows, StreamsBuilder, serdes
from kstreams_repl.engine.serdes import session_windowed
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.system.errors import KStreamsError
from kstreams_repl.testing import TopologyTestDriver
from tests.unit.engine.runtime.rig import Rig

STRING, JSON, LONG = serdes.string, serdes.json, serdes.long
BOTH = pytest.mark.parametrize("cache", [1_000_000, 0])


class Stamp(FixedKeyProcessor):
    """A header more; the value stays."""

    def init(self, context: Any) -> None:
        self.context = context

    def process(self, record: FixedKeyRecord) -> None:
        self.context.forward(record.with_headers([*record.headers, ("stamp", b"1")]))


def stamped(builder: StreamsBuilder) -> KStream:
    return builder.stream("in", key_serde=STRING, value_serde=JSON).process_values(Stamp)


def counted() -> Topology:
    builder = StreamsBuilder()
    counts = stamped(builder).group_by_key(key_serde=STRING, value_serde=JSON).count(store="c")
    counts.to_stream().to("out", key_serde=STRING, value_serde=LONG)
    return builder.build()


def reduced() -> Topology:
    builder = StreamsBuilder()
    last = stamped(builder).group_by_key(key_serde=STRING, value_serde=JSON).reduce(lambda old, new: new, store="c")
    last.to_stream().to("out", key_serde=STRING, value_serde=JSON)
    return builder.build()


def kept() -> Topology:
    builder = StreamsBuilder()
    stamped(builder).to_table(store="c", key_serde=STRING, value_serde=JSON).to_stream().to("out", key_serde=STRING, value_serde=JSON)
    return builder.build()


def sessions_kept() -> Topology:
    """Sessions have no headers, however they are kept behind the operator."""
    builder = StreamsBuilder()
    windows = SessionWindows.of_inactivity_gap(15, grace=100)
    grouped = builder.stream("in", key_serde=STRING, value_serde=JSON).group_by_key()
    sessions = grouped.windowed_by(windows).count(store="c", caching=False)
    key_serde = session_windowed(STRING)
    shown = sessions.filter(lambda key, value: True, store="u", key_serde=key_serde, value_serde=LONG)
    shown.to_stream().to("out", key_serde=key_serde, value_serde=LONG)
    return builder.build()


def in_the_driver(topology: Topology, cache: int) -> list[Any]:
    with TopologyTestDriver(topology, {"statestore.cache.max.bytes": cache}) as driver:
        driver.create_input_topic("in", STRING, JSON).pipe_input("k", 1, 20, [("own", b"0")])
        return [record.headers for record in driver.output("out")]


def deployed(topology: Topology, cache: int) -> list[Any]:
    rig = Rig(topology, {"statestore.cache.max.bytes": cache})
    rig.pipe("in", ("k", 1, 20, [("own", b"0")])).run()
    rig.commit()
    return [headers for topic, _, _, _, headers, _ in rig.outbox.sent if topic == "out"]


@BOTH
@pytest.mark.parametrize("run", [in_the_driver, deployed])
@pytest.mark.parametrize("make", [counted, reduced, kept])
def test_a_header_that_a_fixed_key_processor_adds_gets_through_a_cache(
    make: Callable[[], Topology], run: Callable[[Topology, int], list[Any]], cache: int
) -> None:
    assert run(make(), cache) == [[("own", b"0"), ("stamp", b"1")]]


@BOTH
@pytest.mark.parametrize("run", [in_the_driver, deployed])
def test_sessions_have_no_headers_behind_a_cache(run: Callable[[Topology, int], list[Any]], cache: int) -> None:
    assert run(sessions_kept(), cache) == [[]]


def test_the_record_at_work_has_its_own_headers_again_after_a_forward() -> None:
    builder = StreamsBuilder()
    source = builder.stream("in", key_serde=STRING, value_serde=JSON)
    source.process_values(Stamp).foreach(lambda key, value: None)
    source.group_by_key(key_serde=STRING, value_serde=JSON).count(store="c").to_stream().to("out", key_serde=STRING, value_serde=LONG)
    assert in_the_driver(builder.build(), 1_000_000) == [[("own", b"0")]]


def test_a_fixed_key_record_cannot_have_a_negative_timestamp() -> None:
    with pytest.raises(KStreamsError, match="timestamp must be >= 0"):
        FixedKeyRecord("k", 1, 5).with_timestamp(-1)
