"""Worker processes that something else kills: Spark gives its query up, and the application goes on by itself (R30)."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

import pytest

from kstreams_repl.host.spark.application_state import Status
from kstreams_repl.host.spark.deployment import Deployment
from tests.spark.hosting import Host, counting, decoded, expected_counts, numbered, processed, running, settle

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(600)]


def kill_one(deployment: Deployment) -> bool:
    """kill -9 of one worker process; False when none has reported yet."""
    for report in deployment.reports.instances.values():
        with suppress(ProcessLookupError):
            os.kill(report.pid, signal.SIGKILL)
            return True
    return False


def kill_until_given_up(deployment: Deployment) -> None:
    """Kill the worker of a slot as soon as there is one, until Spark has given the query up once more."""
    before, deadline = len(deployment.restarts.history), time.monotonic() + 120
    while len(deployment.restarts.history) == before:
        kill_one(deployment)
        assert deployment.error is None, deployment.error
        assert time.monotonic() < deadline, deployment
        time.sleep(0.05)


@pytest.mark.slow
def test_an_application_whose_workers_are_killed_goes_on_by_itself_and_says_so(host: Host) -> None:
    source, sink = host.topic("in"), host.topic("out")
    deployment = host.deploy(counting(source, sink), num_stream_threads=1)
    running(deployment)
    host.produce(source, numbered(1_000))
    processed(deployment, 1_000)
    kill_until_given_up(deployment)
    assert deployment.status is Status.RUNNING
    host.produce(source, numbered(1_000, start=1_000))
    processed(deployment, 2_000)
    assert "killed from outside" in deployment.restarts.history[-1] and deployment.error is None
    deployment.stop()
    assert decoded(host.table(sink)) == expected_counts(numbered(2_000))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_twenty_deaths_a_minute_for_five_minutes(host: Host) -> None:
    """R30."""
    source, sink = host.topic("in"), host.topic("out")
    deployment = host.deploy(counting(source, sink))
    running(deployment)
    sent = deaths = 0
    began = time.monotonic()
    while time.monotonic() < began + 300:
        host.produce(source, numbered(500, start=sent))
        sent += 500
        deaths += kill_one(deployment)
        assert deployment.error is None, deployment.error
        time.sleep(max(0.0, began + 3 * deaths - time.monotonic()))
    processed(deployment, sent)
    print(f"\n{deaths} deaths in 300 s, {sent:,} records, {len(deployment.restarts.history)} restarts of the query")
    assert deaths >= 100
    settle(lambda: deployment.status is Status.RUNNING, "running")
    deployment.stop()
    assert decoded(host.table(sink)) == expected_counts(numbered(sent))
