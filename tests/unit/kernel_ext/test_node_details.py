"""Details of a shape in the panel, as far as they need no broker."""

from __future__ import annotations

import kstreams_repl as ks
from kernel_ext.live.node_details import with_debug_calls
from kstreams_repl.repl.session import Records
from kstreams_repl.repl.session.topics.records import ReadRecord


def test_a_record_of_an_input_has_the_call_that_debugs_it() -> None:
    builder = ks.StreamsBuilder()
    builder.stream("orders", key_serde="string", value_serde="long").to("out")
    builder.global_table("rates", store="rates")
    topology = builder.build()
    for topic, calls in (("orders", ["app.debug('orders-0@17')", "app.debug('orders-2@3')"]), ("out", []), ("rates", [])):
        records = Records([ReadRecord("a", 1, 1_000, topic, 0, 17), ReadRecord("b", 2, 1_000, topic, 2, 3)])
        table = with_debug_calls(topology, topic, records)
        assert [row[-1] for row in table.rows if "debug" in table.columns] == calls
        assert table.columns[:5] == records.table().columns
        assert all(call.replace("'", "&#x27;") in str(table.html()) or call in str(table.html()) for call in calls)
