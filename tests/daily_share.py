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
    "kafka/test_registry_credentials.py", "kafka/test_conformance_deployed.py", "kafka/test_look.py",
    "kafka/test_schema_registry.py", "kafka/test_as_of_one_commit.py", "kafka/test_embedded_broker.py",
    "kafka/test_schema_contracts.py", "kafka/test_bridge.py", "kafka/test_as_of.py",
    "kafka/test_schema_ids_in_headers.py", "kafka/test_truncated_input.py", "kafka/test_why.py",
    "spark/test_processing_threads.py", "kafka/test_forgotten_offsets.py", "session/test_query_server.py",
    "spark/test_metrics.py", "kafka/test_joins_wait_for_their_table.py", "spark/test_topologies.py",
)  # fmt: skip
"""Files of many seconds, of which a run of everything but the slow tier takes a third, each day another; all are in the slow tier."""
SHARES = 3


def waits(path: Path) -> bool:
    """Return whether a file is among those of another day."""
    name = "/".join(path.parts[-2:])
    return name in ROTATING and name not in daily_share(ROTATING, SHARES)
