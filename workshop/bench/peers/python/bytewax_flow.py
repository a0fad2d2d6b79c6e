"""The workloads on Bytewax: `python bytewax_flow.py OPTIONS` with the options as JSON (see `python_peers.py`).

State is in memory without a recovery store, so nothing outlives the process: less work than the other systems do.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import bytewax.operators as op
import bytewax.operators.windowing as windowing
import orjson
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource
from bytewax.dataflow import Dataflow
from bytewax.run import cli_main
from counter import ProcessCounter

_FETCH = {"fetch.max.bytes": "100000000", "queued.min.messages": "100000"}
_BATCH = 2000


def flow(options: dict[str, Any], counter: ProcessCounter) -> Dataflow:
    """Return the dataflow of a workload."""
    workload, brokers = options["workload"], [options["bootstrap"]]
    dataflow = Dataflow("peer")

    def seen(message: object) -> Any:
        counter.tick()
        return message

    source = KafkaSource(brokers, [options["input"]], tail=False, batch_size=_BATCH, add_config=_FETCH)
    stream = op.map("seen", op.input("in", dataflow, source), seen)
    if workload == "stateless":
        out = op.filter_map("parse", stream, _parsed)
    elif workload in ("count", "sum"):
        step = (lambda message: 1) if workload == "count" else (lambda message: orjson.loads(message.value)["amount"])
        pairs = op.map("pairs", stream, lambda message: (message.key.decode(), step(message)))
        sums = op.stateful_map("sums", pairs, lambda state, value: ((state or 0) + value,) * 2)
        out = op.map("out", sums, lambda pair: _message(pair[0], str(pair[1])))
    elif workload == "window":
        clock: Any = windowing.EventClock(
            ts_getter=lambda message: datetime.fromtimestamp(message.timestamp[1] / 1000, UTC),
            wait_for_system_duration=timedelta(0),
        )
        windower = windowing.TumblingWindower(length=timedelta(seconds=1), align_to=datetime(2024, 1, 1, tzinfo=UTC))
        counts = windowing.count_window("windows", stream, clock, windower, lambda message: message.key.decode())
        out = op.map("out", counts.down, lambda pair: _message(pair[0], str(pair[1][1])))
    else:
        rows = op.input("table", dataflow, KafkaSource(brokers, [options["table"]], tail=False, batch_size=_BATCH))
        left = op.map("left", stream, lambda message: (message.key.decode(), (False, message.value)))
        right = op.map("right", rows, lambda message: (message.key.decode(), (True, message.value)))
        joined = op.stateful_flat_map("join", op.merge("both", left, right), _join)
        out = op.map("out", joined, lambda pair: _message(pair[0], pair[1]))
    sending = {"linger.ms": str(options["linger_ms"]), "compression.type": options["compression"]}
    op.output(
        "sink", out, KafkaSink(brokers, options["output"], add_config=sending | {"queue.buffering.max.messages": "2000000"})
    )
    return dataflow


def _message(key: object, value: str) -> Any:
    return KafkaSinkMessage(key=key.encode() if isinstance(key, str) else key, value=value.encode())


def _parsed(message: Any) -> Any:
    value = orjson.loads(message.value)
    return _message(message.key, f"{value['item']}:{value['amount']}") if value["amount"] > 500 else None


def _join(row: Any, value: tuple[bool, bytes]) -> tuple[Any, list[str]]:
    is_row, raw = value
    if is_row:
        return orjson.loads(raw), []
    return row, [] if row is None else [f"{row['country']}|{orjson.loads(raw)['amount']}"]


def main(options: dict[str, Any]) -> None:
    """Run one of `processes` that share the partitions; ends with its input."""
    addresses = options["addresses"]
    cli_main(flow(options, ProcessCounter(options["folder"])), process_id=options["number"], addresses=addresses)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
