"""A standalone cluster, and a driver on it. There is one Spark context per process, so these tests run before those that share the
local one, and leave none behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kstreams_repl.host.spark.startup.spark_session import get_session, stop_session
from kstreams_repl.host.spark.startup.standalone_cluster import StandaloneCluster
from tests.spark.hosting import Host


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[StandaloneCluster]:
    with StandaloneCluster(tmp_path / "cluster") as made:
        yield made


@pytest.fixture
def host(broker: Any, cluster: StandaloneCluster, tmp_path: Path) -> Iterator[Host]:
    stop_session()
    try:
        made = Host(broker, get_session(cluster.master), tmp_path, on_cluster=True)
        yield made
        made.close()
    finally:
        stop_session()
