"""Tables on an object store: a real S3 server (moto's), each format, several runs, a late day, compaction."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pyarrow import fs
from pyiceberg.catalog import load_catalog

import kstreams_repl as ks
from kstreams_repl.engine.topology.table_files import FORMATS
from kstreams_repl.table_files.compaction import compact
from tests.environments import installed

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]
DAY_MS = 86_400_000


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[str]:
    python = installed(tmp_path / "moto", "moto[s3]", "flask", "flask-cors")
    log = tmp_path / "moto.log"
    with log.open("wb") as output:
        server = subprocess.Popen([str(python), "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"], stdout=output, stderr=output)
    try:
        until = time.monotonic() + 60
        while not (bound := re.search(r"Running on (http://127\.0\.0\.1:\d+)", log.read_text())):  # printed when it listens
            assert time.monotonic() < until and server.poll() is None, log.read_text()
            time.sleep(0.1)
        yield bound[1]
    finally:
        server.terminate()
        server.wait(30)


def test_runs_fill_tables_on_an_object_store(broker: Any, endpoint: str, tmp_path: Path) -> None:
    options = {
        "AWS_ACCESS_KEY_ID": "tests",
        "AWS_SECRET_ACCESS_KEY": "secret-of-tests",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
    }
    store = fs.S3FileSystem(
        access_key="tests", secret_key="secret-of-tests", region="us-east-1", endpoint_override=endpoint, allow_bucket_creation=True
    )
    store.create_dir("tables")
    catalog = {"name": "lake", "type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": "s3://tables"}

    def topology(source: str) -> ks.StreamsBuilder:
        builder = ks.StreamsBuilder()
        orders = builder.stream(source, key_serde="string", value_serde="json")
        for format in FORMATS:
            orders.to_table_files(
                f"s3://tables/{format}", format, schema={"n": "int64"}, partition_by="event_day", storage_options=options,
                catalog=catalog if format == "iceberg" else None, name=format,
            )  # fmt: skip
        return builder

    def numbers() -> dict[str, list[int]]:
        s3 = {"s3.endpoint": endpoint, "s3.access-key-id": "tests", "s3.secret-access-key": "secret-of-tests"}
        iceberg = load_catalog("lake", type="sql", uri=catalog["uri"], warehouse=catalog["warehouse"], **s3)
        tables = {
            "parquet": ds.dataset("tables/parquet", filesystem=store, format="parquet", partitioning="hive").to_table(),
            "delta": DeltaTable("s3://tables/delta", storage_options=options).to_pyarrow_table(),
            "iceberg": iceberg.load_table("default.iceberg").scan().to_arrow(),
        }
        return {format: sorted(table.column("n").to_pylist()) for format, table in tables.items()}

    def files(format: str) -> list[str]:
        found = store.get_file_info(fs.FileSelector(f"tables/{format}", recursive=True))
        return [info.path for info in found if info.path.endswith((".parquet", ".arrow", ".staged", ".open"))]

    with ks.connect(broker.bootstrap_servers, directory=tmp_path, report=lambda line: None) as session:
        source = f"s3{tmp_path.name[-6:]}{id(session) % 10_000}"
        session.create_topic(source, partitions=2)
        for run, days in enumerate(((5, 6), (7,), (2, 7))):  # the last run has a late day
            session.produce(source, [(f"k{n}", {"n": n}, days[n % len(days)] * DAY_MS) for n in range(run * 100, run * 100 + 100)])
            app = session.run_batch(topology(source), f"{source}-app", processing_guarantee="exactly_once_v2", num_stream_threads=1)
            report = app.batch_report
            assert report is not None and report.state == "finished"
            assert numbers() == dict.fromkeys(FORMATS, list(range(run * 100 + 100)))
    for format in FORMATS:
        assert all(name.endswith(".parquet") for name in files(format)), "nothing staged is left"
        assert {name.split("/")[-2] for name in files(format)} == {f"event_day=1970-01-0{day + 1}" for day in (5, 6, 7, 2)}
        done = compact(f"s3://tables/{format}", storage_options=options, catalog=catalog if format == "iceberg" else None)
        assert done.removed > done.added >= 1
    assert numbers() == dict.fromkeys(FORMATS, list(range(300)))
