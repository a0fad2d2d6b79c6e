"""A running application removes, by itself, the state of tasks that it no longer has."""

from __future__ import annotations

import pytest

from kstreams_repl.engine.stores.engine.lmdb import LmdbEnvironment
from kstreams_repl.host.instance.state.state_directory import task_directory
from kstreams_repl.system.types import TaskId
from tests.spark.hosting import Host, counting, decoded, expected_counts, numbered, processed, settle

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.mark.slow  # tests/unit/host/instance/test_state_cleanup.py has the rules, on real directories
def test_state_of_a_task_that_is_gone_is_removed_while_the_application_runs(host: Host) -> None:
    source, sink = host.topic("in"), host.topic("out")
    host.produce(source, numbered(1_000))
    deployment = host.deployment(counting(source, sink), state_cleanup_delay_ms=100)
    gone = task_directory(deployment.state_root, deployment.application_id, TaskId(7, 0))
    LmdbEnvironment(gone).close()
    deployment.start()
    settle(lambda: not gone.exists(), "the state to be removed")
    processed(deployment, 1_000)
    deployment.stop()
    kept = [task_directory(deployment.state_root, deployment.application_id, TaskId(0, partition)) for partition in range(4)]
    assert all(path.exists() for path in kept)
    assert decoded(host.table(sink)) == expected_counts(numbered(1_000))
