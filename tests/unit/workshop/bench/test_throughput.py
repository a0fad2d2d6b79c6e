"""What a throughput benchmark runs when nothing is said of it, and when its comparison holds."""

from __future__ import annotations

from workshop.bench.peers.kafka_streams import PeerRun
from workshop.bench.rig.comparison import fault_of
from workshop.bench.rig.outputs import Output
from workshop.bench.throughput import records_of

WHOLE, CUT = PeerRun(10, 1.0, 1.0, 100, True), PeerRun(7, 1.0, 1.0, 100, False)
COUNTED = Output(2, {b"a": b"1", b"b": b"2"})


def test_beside_a_peer_ten_million_records_are_the_default() -> None:
    assert records_of(None, "kafka-streams") == 10_000_000
    assert records_of(None, None) == 2_000_000


def test_records_that_were_asked_for_are_run() -> None:
    assert records_of(5_000, "kafka-streams") == records_of(5_000, None) == 5_000


def test_the_same_output_is_no_fault() -> None:
    assert fault_of([WHOLE, WHOLE], 10, COUNTED, Output(3, dict(COUNTED.last))) is None


def test_a_different_output_is_told_with_its_differences() -> None:
    told = fault_of([WHOLE], 10, COUNTED, Output(2, {b"a": b"1", b"b": b"3"}))
    assert told is not None and told.startswith("2 differences in the final output")


def test_a_peer_that_did_not_come_to_its_end_is_not_the_same() -> None:
    assert fault_of([WHOLE, CUT], 10, COUNTED, None) == "1 of 2 runs of the peer did not finish all 10 records"
    assert fault_of([CUT, WHOLE], 10, COUNTED, COUNTED) == "1 of 2 runs of the peer did not finish all 10 records"


def test_an_output_that_was_not_read_is_not_the_same() -> None:
    assert fault_of([WHOLE], 10, None, COUNTED) == "an output could not be read"
