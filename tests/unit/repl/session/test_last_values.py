"""The values at nodes of applications that do not run, with their own settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.host.kafka.admin import NewTopicSpec
from kstreams_repl.host.kafka.reading import OffsetRange
from kstreams_repl.repl.session.views.values import sample_run
from kstreams_repl.system.errors import KStreamsError, TopologyError
from kstreams_repl.system.types import RecordBatch, TopicPartition
from tests.unit.repl.session.small_cluster import PARTITIONS, SmallCluster, SmallSession


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SmallSession:
    cluster = SmallCluster()
    cluster.create_topics([NewTopicSpec("in", PARTITIONS)])
    ranges = (OffsetRange(TopicPartition("in", 0), 0, 1),)
    monkeypatch.setattr(sample_run, "ranges_of", lambda admin, topic: ranges)
    monkeypatch.setattr(sample_run, "read_ranges", lambda *about: [(ranges[0].partition, RecordBatch([b"k"], [b'{"n":1}'], [1], [0]))])
    return SmallSession(cluster, tmp_path)


def test_a_sample_of_an_application_has_its_default_serdes(session: SmallSession) -> None:
    """The session's were taken: functions were given bytes, and the sample ended with their errors."""
    builder = ks.StreamsBuilder()
    builder.stream("in").map_values(lambda value: value["n"] + 1, name="more")
    app: Any = session.deploy(builder, "app", config={"default.value.serde": "json"})
    app._core.finish_start()
    app.stop()
    for found in (session.values("more"), session.values("more", topology=app), app.tap("more")):
        assert isinstance(found, ks.reports.Records) and [record.value for record in found] == [2]
    assert session.values(app).rows[-1][-1] == 2
    given = session.values("more", config={"default.value.serde": "string", "processing.exception.handler": "continue"})
    assert len(given) == 0, "what the call gives goes first"


def test_the_note_counts_in_words_and_names_the_line_that_failed_without_a_hint_to_deploy(session: SmallSession) -> None:
    builder = ks.StreamsBuilder()
    values = builder.stream("in", value_serde="json", name="all").map_values(lambda value: value["n"], name="n")
    values.map_values(lambda value: value / 0, name="broken")
    at_node: Any = session.values("n", topology=builder)
    assert at_node.note.startswith("n: 1 value from a sample of 1 record")
    everywhere: Any = session.values(builder)
    for note in (at_node.note, everywhere.note):
        assert "the sample ended with ZeroDivisionError" in note and "broken" in note and "Hint" not in note, note


def test_a_node_of_two_applications_asks_of_which(session: SmallSession) -> None:
    """The first one's values were shown, whichever was meant: generated names are the same in many."""
    for name, added in (("one", 1), ("two", 2)):
        builder = ks.StreamsBuilder()
        builder.stream("in", value_serde="json").map_values(lambda value, added=added: added)
        app: Any = session.deploy(builder, name)
        app._core.finish_start()
        app.stop()
    with pytest.raises(TopologyError, match="several applications have a node 'KSTREAM-MAPVALUES-0000000001': one, two") as told:
        session.values("KSTREAM-MAPVALUES-0000000001")
    assert "topology=session.applications['one']" in told.value.hint
    assert session.values("KSTREAM-MAPVALUES-0000000001", topology=session.applications["two"])[0].value == 2


@pytest.mark.parametrize("n", [-1, 2.5, "3"])
def test_what_is_no_number_of_records_is_told(session: SmallSession, n: Any) -> None:
    """It was a TypeError or a ValueError of slices, queues and formats."""
    builder = ks.StreamsBuilder()
    builder.stream("in", name="source")
    for look in (lambda: session.values("source", n, topology=builder), lambda: session.read("in", n), lambda: session.record("in", n=n)):
        with pytest.raises(KStreamsError, match="n must be >= 0") as told:
            look()
        assert told.value.hint
