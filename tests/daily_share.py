"""Of cases that are too many for every run, another part every day. The slow tier tries all."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import TypeVar

Case = TypeVar("Case")


def daily_share(cases: Iterable[Case], of: int) -> list[Case]:
    """Return today's ``1/of`` of the cases."""
    return list(cases)[int(os.environ.get(DAY, date.today().toordinal())) % of :: of]


DAY = "KSTREAMS_TESTS_DAY"
"""Pins the day in all processes of a run, which may go on after midnight."""
ROTATING = (
    "session/test_forks.py", "faults/test_r35_forks.py",
    "integration/test_readme.py", "session/test_on_spark.py", "past/test_debugger.py", "kafka/test_conformance_deployed.py",
    "instance/test_instance_cache.py", "kafka/test_look.py", "kafka/test_registry_credentials.py",
    "kafka/test_schema_registry.py", "kafka/test_as_of.py", "browser/test_moving_about.py",
    "operators/test_stream_sql_partials.py", "kafka/test_why.py", "operators/test_windows_over_restarts.py",
    "browser/test_jupyterlab.py", "kafka/test_as_of_one_commit.py", "system/test_extras.py", "session/test_query_server.py",
    "browser/test_picture.py", "kafka/test_embedded_broker.py", "inspection/test_time_zones.py", "kafka/test_bridge.py",
    "conformance/test_engines.py", "operators/test_rules_of_operators.py", "table_files/test_table_sink.py",
    "serving/test_remote_stores.py", "cli/test_test.py", "kafka/test_schema_contracts.py", "spark/test_processing_threads.py",
    "serving/test_server_access.py", "past/test_replica.py", "operators/test_merged_columns.py",
    "instance/test_crash_watchdog.py", "kafka/test_schema_ids_in_headers.py", "kafka/test_truncated_input.py",
    "serving/test_every_route_and_bad_values.py", "bench/test_nexmark.py", "spark/test_metrics.py", "faults/test_alignment.py",
    "serving/test_server_reads.py", "runtime/test_batch_node.py", "faults/test_r21_timestamps.py", "stores/test_key_index.py",
    "demo/test_tutorial.py", "kafka/test_forgotten_offsets.py", "serdes/test_avro_defaults.py", "spark/test_topologies.py",
    "integration/test_demo.py", "session/test_effects.py", "kafka/test_joins_wait_for_their_table.py",
    "session/test_sql_over_a_large_topic.py", "spark/test_growth.py", "kafka/test_standby_troubles.py", "spark/test_snapshots.py",
    "kafka/test_poison_after_a_commit.py",
)  # fmt: skip
"""Files of many seconds, the longest first, of which a run of everything but the slow tier takes a third, each day another; all are in
the slow tier."""
SHARES = 3


def waits(path: Path) -> bool:
    """Return whether a file is among those of another day."""
    name = "/".join(path.parts[-2:])
    return name in ROTATING and name not in daily_share(ROTATING, SHARES)
