"""The workloads on Quix Streams: `python quix_streams.py OPTIONS` with the options as JSON (see `python_peers.py`)."""

from __future__ import annotations

import json
import sys
from typing import Any

from counter import ProcessCounter
from quixstreams import Application

_COMMIT_SECONDS = 5.0
"""Quix Streams' default commit interval, at least once."""


def main(options: dict[str, Any]) -> None:
    """Run until the process is killed."""
    counter = ProcessCounter(options["folder"])
    source = options["input"]
    exactly_once = options["guarantee"] == "exactly_once_v2"
    app = Application(
        broker_address=options["bootstrap"],
        consumer_group=options["name"],
        auto_offset_reset="earliest",
        state_dir=f"{options['folder']}/state-{options['number']}",
        processing_guarantee="exactly-once" if exactly_once else "at-least-once",
        commit_interval=options["commit_ms"] / 1000 if exactly_once else _COMMIT_SECONDS,
        loglevel="ERROR",
        producer_extra_config={
            "linger.ms": options["linger_ms"],
            "compression.type": options["compression"],
            "queue.buffering.max.messages": 2_000_000,
            "partitioner": "murmur2_random",
        },
        consumer_poll_timeout=0.1,
        on_message_processed=lambda topic, partition, offset: counter.tick() if topic == source else None,
    )
    workload = options["workload"]
    raw = "bytes" if workload == "count" else "json"
    frame: Any = app.dataframe(app.topic(source, key_deserializer="bytes", value_deserializer=raw))
    shape = "json"
    if workload == "stateless":
        frame = frame[frame.apply(lambda value: value["amount"] > 500)]
        frame = frame.apply(lambda value: f"{value['item']}:{value['amount']}")
        shape = "str"
    elif workload in ("count", "sum"):
        frame = frame.apply(_adder((lambda value: 1) if workload == "count" else (lambda value: value["amount"])), stateful=True)
    elif workload == "window":
        frame = frame.tumbling_window(1000).count().current()
    else:
        right = app.dataframe(app.topic(options["table"], key_deserializer="bytes", value_deserializer="json"))
        frame = frame.join_asof(right, how="inner", on_merge="keep-left")
        frame = frame.apply(lambda value: f"{value['country']}|{value['amount']}")
        shape = "str"
    frame.to_topic(app.topic(options["output"], key_serializer="bytes", value_serializer=shape))
    app.run()


def _adder(step: Any) -> Any:
    def add(value: Any, state: Any) -> Any:
        number = state.get("n", 0) + step(value)
        state.set("n", number)
        return number

    return add


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
