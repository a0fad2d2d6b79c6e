"""What a throughput benchmark runs when nothing is said of it."""

from __future__ import annotations

from kstreams_repl.bench.throughput import records_of


def test_beside_a_peer_ten_million_records_are_the_default() -> None:
    assert records_of(None, "kafka-streams") == 10_000_000
    assert records_of(None, None) == 2_000_000


def test_records_that_were_asked_for_are_run() -> None:
    assert records_of(5_000, "kafka-streams") == records_of(5_000, None) == 5_000
