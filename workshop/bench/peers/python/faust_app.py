"""The workloads on Faust (faust-streaming): `python faust_app.py OPTIONS` with the options as JSON (see `python_peers.py`).

It offers at least once only; its store is in memory with a changelog.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import faust
from counter import ProcessCounter

_WEB_PORT = 16066


def main(options: dict[str, Any]) -> None:
    """Run until the process is killed."""
    tick = ProcessCounter(options["folder"]).tick
    workload = options["workload"]
    partitions = options["partitions"]
    app = faust.App(
        options["name"],
        broker=f"kafka://{options['bootstrap']}",
        store="memory://",
        topic_partitions=partitions,
        datadir=f"{options['folder']}/data-{options['number']}",
        web_port=_WEB_PORT + options["number"],
        web_enabled=False,
        consumer_auto_offset_reset="earliest",
        stream_wait_empty=False,
        topic_replication_factor=1,
        producer_linger=options["linger_ms"] / 1000,
        producer_compression_type=options["compression"],
    )
    source = app.topic(options["input"], key_type=bytes, value_type=bytes, value_serializer="raw", key_serializer="raw")
    out = app.topic(options["output"], key_serializer="raw", value_serializer="raw")
    if workload == "stateless":

        @app.agent(source)
        async def parse(stream: Any) -> None:
            async for key, raw in stream.items():
                tick()
                value = json.loads(raw)
                if value["amount"] > 500:
                    await out.send(key=key, value=f"{value['item']}:{value['amount']}".encode())

    elif workload in ("count", "sum"):
        table = app.Table("sums", default=int, partitions=partitions, key_type=str, value_type=int)

        @app.agent(source)
        async def add(stream: Any) -> None:
            async for key, raw in stream.items():
                tick()
                name = key.decode()
                table[name] += 1 if workload == "count" else json.loads(raw)["amount"]
                await out.send(key=key, value=str(table[name]).encode())

    elif workload == "window":
        windows = app.Table("windows", default=int, partitions=partitions, key_type=str, value_type=int).tumbling(1.0, expires=60)

        @app.agent(source)
        async def count(stream: Any) -> None:
            async for key, _ in stream.items():
                tick()
                name = key.decode()
                windows[name] += 1
                await out.send(key=key, value=str(windows[name].current()).encode())

    else:
        users = app.topic(options["table"], key_type=bytes, value_type=bytes, value_serializer="raw", key_serializer="raw")
        rows = app.Table("users", partitions=partitions, key_type=str, value_type=str)

        @app.agent(users)
        async def fill(stream: Any) -> None:
            async for key, raw in stream.items():
                rows[key.decode()] = json.loads(raw)["country"]

        @app.agent(source)
        async def join(stream: Any) -> None:
            async for key, raw in stream.items():
                tick()
                country = rows.get(key.decode())
                if country is not None:
                    await out.send(key=key, value=f"{country}|{json.loads(raw)['amount']}".encode())

    sys.argv = ["faust", "worker", "-l", "error", "--without-web"]
    app.main()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
