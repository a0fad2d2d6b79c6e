"""OpenLineage events of an application's life, received over HTTP and compared with OpenLineage's own names."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kstreams_repl import StreamsBuilder, serdes
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.host.spark.application_state import ApplicationLife, Status
from kstreams_repl.host.spark.lineage import Lineage
from kstreams_repl.system.errors import ApplicationFailedError
from tests.collector import collecting

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "user", "type": "string"}, {"name": "amount", "type": "long"}]}


def topology(output: str) -> Any:
    builder = StreamsBuilder()
    orders = builder.stream("orders", key_serde="string", value_serde=serdes.avro(ORDER, without_registry=True))
    by_user = orders.group_by(lambda key, value: value["user"]).count(store="counts").to_stream()
    by_user.to(output, key_serde="string", value_serde="long")
    return builder.build()


def test_runs_begin_and_end_with_what_they_read_and_write() -> None:
    with collecting() as collector:
        config = {"application.id": "app", "bootstrap.servers": "one:9092,two:9092", "repl.openlineage.url": collector.url}
        lineage, error = Lineage(StreamsConfig(config)), ApplicationFailedError("disk full")
        runs = topology("totals")
        life = ApplicationLife("app", lambda state: lineage.entered(state, runs, error if state is Status.FAILED else None))
        for state in (Status.RUNNING, Status.RESTARTING, Status.RUNNING, Status.PAUSED):
            life.enter(state, "")
        runs = topology("sums")
        for state in (Status.RUNNING, Status.FAILED, Status.STOPPED):
            life.enter(state, "")
        collector.wait(lambda: len(collector.lineage) == 4)
    events = collector.lineage
    assert [event["eventType"] for event in events] == ["START", "COMPLETE", "START", "FAIL"]
    first, second = ({event["run"]["runId"] for event in part} for part in (events[:2], events[2:]))
    assert len(first) == len(second) == 1 and first != second
    assert {(event["job"]["namespace"], event["job"]["name"]) for event in events} == {("kstreams_repl", "app")}
    named = [[(each["namespace"], each["name"]) for each in event["inputs"] + event["outputs"]] for event in events[1:3]]
    assert named == [[("kafka://one:9092", "orders"), ("kafka://one:9092", output)] for output in ("totals", "sums")]
    assert [field["name"] for field in events[0]["inputs"][0]["facets"]["schema"]["fields"]] == ["user", "amount"]
    assert events[0]["job"]["facets"]["jobType"]["processingType"] == "STREAMING"
    assert events[3]["run"]["facets"]["errorMessage"]["message"] == "disk full"


def test_fields_come_from_inputs_whose_values_are_handed_on_and_from_no_function() -> None:
    value = serdes.avro(ORDER, without_registry=True)
    builder = StreamsBuilder()
    orders = builder.stream(["orders", "old"], key_serde="string", value_serde=value)
    large = orders.filter(lambda key, value: value["amount"] > 10).select_key(lambda key, value: value["user"])
    large.repartition(name="by-user", key_serde="string", value_serde=value).to("large", key_serde="string", value_serde=value)
    orders.map_values(lambda value: value).to("changed", key_serde="string", value_serde=value)
    builder.stream("old-too", key_serde="string", value_serde=value).to("changed", key_serde="string", value_serde=value)
    matching = builder.stream(re.compile("more-.*"), key_serde="string", value_serde=value)
    orders.merge(matching).to("merged", key_serde="string", value_serde=value)
    with collecting() as collector:
        config = {"application.id": "app", "bootstrap.servers": "one:9092", "repl.openlineage.url": collector.url}
        Lineage(StreamsConfig(config)).entered(Status.RUNNING, builder.build(), None)
        collector.wait(lambda: len(collector.lineage) == 1)
    changed, large_, merged = collector.lineage[0]["outputs"]
    assert (changed["name"], large_["name"], merged["name"]) == ("changed", "large", "merged")
    assert "columnLineage" not in {*changed["facets"], *merged["facets"]}, "a function; topics that are not known"
    fields = large_["facets"]["columnLineage"]["fields"]
    wanted = {column: [("orders", column), ("old", column)] for column in ("user", "amount")}
    assert {column: [(each["name"], each["field"]) for each in of["inputFields"]][::-1] for column, of in fields.items()} == wanted
    assert fields["user"]["inputFields"][0]["transformations"] == [{"type": "DIRECT", "subtype": "IDENTITY"}]


def test_a_receiver_that_is_away_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    config = {"application.id": "app", "bootstrap.servers": "one:9092", "repl.openlineage.url": "http://127.0.0.1:1"}
    lineage, runs = Lineage(StreamsConfig(config)), topology("totals")
    life = ApplicationLife("app", lambda state: lineage.entered(state, runs, None))
    life.enter(Status.RUNNING, "")
    assert life.state is Status.RUNNING
    assert lineage._sending is not None
    lineage._sending.join(60)
    assert sum("was not sent to OpenLineage" in text for text in caplog.messages) == 1
