"""When the outputs of two systems are the same."""

from __future__ import annotations

from workshop.bench.rig.outputs import Output


def test_tables_are_compared_by_last_values_whatever_the_number_of_changes() -> None:
    ours = Output(3, {b"a": b"2", b"b": b"1"})
    assert ours.differences(Output(9, {b"b": b"1", b"a": b"2"})) == 0


def test_a_changed_and_a_missing_key_are_differences() -> None:
    ours = Output(2, {b"a": b"2", b"b": b"1"})
    assert ours.differences(Output(2, {b"a": b"3", b"b": b"1"})) > 0
    assert ours.differences(Output(1, {b"a": b"2"})) > 0
    assert ours.differences(Output(0)) > 0


def test_streams_differ_by_number_or_by_fingerprint() -> None:
    assert Output(2, fingerprint=5).differences(Output(2, fingerprint=5)) == 0
    assert Output(2, fingerprint=5).differences(Output(3, fingerprint=5)) == 1
    assert Output(2, fingerprint=5).differences(Output(2, fingerprint=6)) == 1
