"""Executors that come when instances wait for them, and go when their host is decommissioned."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from kstreams_repl.host.spark.slots.spark_slots import slots_there, total_slots
from kstreams_repl.host.spark.startup.spark_session import get_session, stop_session
from kstreams_repl.host.spark.startup.standalone_cluster import StandaloneCluster
from tests.cluster.test_standalone import places
from tests.spark.hosting import Host, counting, decoded, expected_counts, numbered, processed, running, settle

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]
GROWING = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "1",
    "spark.dynamicAllocation.maxExecutors": "3",
    "spark.dynamicAllocation.executorIdleTimeout": "30s",
    "spark.decommission.enabled": "true",
    "spark.executor.cores": "2",
    "spark.executor.memory": "512m",
}


def test_executors_come_for_instances_that_wait_and_a_decommissioned_one_goes(
    broker: Any, cluster: StandaloneCluster, tmp_path: Path
) -> None:
    stop_session()
    host = None
    try:
        spark = get_session(cluster.master, settings=GROWING)
        host = Host(broker, spark, tmp_path, on_cluster=True)
        source, sink = host.topic("in"), host.topic("out")
        host.produce(source, numbered(4_000))
        settle(lambda: slots_there(spark) == 2, "the first executor")
        assert total_slots(spark) == 6
        deployment = host.deploy(counting(source, sink), num_stream_threads=3, repl_epoch_ms=2000)
        processed(deployment, 4_000)
        running(deployment)
        before = places(host, deployment)
        assert len(set(before.values())) == 2 and slots_there(spark) == 4, "a second executor came for the third instance"
        slot = next(slot for slot, place in before.items() if list(before.values()).count(place) == 1)
        above = psutil.Process(deployment.reports.instances[slot].pid).parents()
        executor = next(process for process in above if "CoarseGrained" in str(process.cmdline()))
        executor.send_signal(signal.SIGPWR)  # as the cluster manager does before it takes a host away
        began = time.monotonic()
        executor.wait(60)
        print(f"\ndecommissioned: gone after {time.monotonic() - began:.1f} s")
        settle(lambda: places(host, deployment)[slot] != before[slot], "the instance to move", story=lambda: places(host, deployment))
        host.produce(source, numbered(1_000, start=4_000))
        processed(deployment, 5_000)
        deployment.stop()
        wanted = expected_counts(numbered(5_000))
        assert decoded(host.table(sink)) == wanted
        assert decoded(host.table(f"{deployment.application_id}-counts-changelog")) == wanted
        settle(lambda: slots_there(spark) == 2, "executors without tasks to go", seconds=120)
    finally:
        if host is not None:
            host.close()
        stop_session()
