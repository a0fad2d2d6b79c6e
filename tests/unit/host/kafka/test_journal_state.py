"""The journal's codec and fold, without a broker."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstreams_repl.host.journal.journal_records import (
    Assignment,
    Claim,
    DesiredState,
    Failure,
    InstanceHeartbeat,
    JournalRecord,
    KeptOffset,
    KeptOffsets,
    Measured,
    StopOffsets,
    TaskHeartbeat,
    VersionRecord,
    decode,
    encode,
    source_hash,
)
from kstreams_repl.host.journal.journal_state import JournalState
from kstreams_repl.system.errors import SerializationError

RECORDS: list[JournalRecord] = [
    DesiredState(2, "running", 3, 4, 5),
    Assignment(2, {"0": ("0_0", "1_0"), "1": ()}),
    VersionRecord.of("x = 1", generation=2, version=3, description="Topologies:"),
    StopOffsets(2, 1, {"in": {"0": 10}}),
    KeptOffsets(2, {"in": {"0": KeptOffset(10, "AgAAAAAAAAAq")}}, 7),
    InstanceHeartbeat(2, 0, "h:1:2", "running", 9, tasks={"0_0": TaskHeartbeat("RUNNING", {"in-0": 3}, lag=2, commit_id=8)}),
    InstanceHeartbeat(2, 1, "h:1:3", "failed", 9, failure=Failure("ZeroDivisionError", "x", node="n", partition=0, offset=4)),
    Claim(2, 0, 1, "h:1:2"),
    Measured(2, 1, '{"at_ms": 1, "groups": []}'),
]


def _owner(state: JournalState, slot: int, epoch: int, run: str = "") -> str | None:
    claim = state.claim_of(slot, epoch, run)
    return None if claim is None else claim.owner


def _folded(*records: JournalRecord) -> JournalState:
    state = JournalState()
    for offset, record in enumerate(records):
        state.apply(*encode(record), offset)
    return state


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.kind)
def test_a_record_is_read_as_it_was_written(record: JournalRecord) -> None:
    assert decode(*encode(record)) == (record.key, record)


def test_what_was_measured_is_kept_by_slot_for_the_generation_in_force() -> None:
    state = _folded(*RECORDS, Measured(2, 1, "later"), Measured(1, 0, "of a passed generation"))
    assert {slot: said.snapshot for slot, said in state.measured.items()} == {1: "later"}
    assert state.apply(*encode(DesiredState(3, "running", 3, 4, 5)), 99) and not state.measured


def test_the_whole_journal_is_one_state() -> None:
    state = _folded(*RECORDS)
    assert (state.generation, state.position, state.ignored) == (2, len(RECORDS), 0)
    assert state.desired == RECORDS[0] and state.assignment == RECORDS[1] and state.stop_offsets == RECORDS[3]
    assert state.kept_offsets == RECORDS[4] and set(state.reports) == {0, 1}
    assert {slot for slot, said in state.reports.items() if said.failure is not None} == {1}
    assert state.versions[3].source_hash == source_hash("x = 1")


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("control/desired", {"kind": "desired", "generation": 1, "state": "exploded", "version": 1, "instances": 1}),
        ("control/desired", {"kind": "desired", "generation": True, "state": "running", "version": 1, "instances": 1}),
        ("control/desired", {"kind": "desired", "generation": 1}),
        ("control/desired", {"kind": "instance", "generation": 1, "slot": 0, "owner": "x", "state": "running", "at_ms": 1}),
        ("instance/0", {"kind": "desired", "generation": 1, "state": "running", "version": 1, "instances": 1}),
        ("instance/1", {"kind": "instance", "generation": 1, "slot": 0, "owner": "x", "state": "running", "at_ms": 1}),
        ("instance/0", {"kind": "instance", "generation": 1, "slot": 0, "owner": "x", "state": "running", "at_ms": 1, "tasks": {"0_0": 1}}),
        ("control/assignment", {"kind": "assignment", "generation": 1, "tasks": {"0": "0_0"}}),
        ("control/unheard-of", {"kind": "unheard-of"}),
        ("elsewhere", {"kind": "desired", "generation": 1, "state": "running", "version": 1, "instances": 1}),
        ("control/desired", []),
        ("control/desired", {"kind": ["desired"]}),
    ],
)
def test_a_record_that_does_not_fit_is_refused_and_changes_nothing(key: str, said: Any) -> None:
    value = orjson.dumps(said)
    with pytest.raises(SerializationError, match="invalid journal record"):
        decode(key.encode(), value)
    state = _folded(DesiredState(1, "running", 1, 1))
    before = state.desired
    assert state.apply(key.encode(), value, 1) is False
    assert (state.desired, state.ignored, state.position) == (before, 1, 2)


HOSTILE = [
    2**64 - 1, 2**63, 2**53 + 1, -2, -(2**63), 1.5, 1e300, True, None, "", "x" * 9_000_000, "²", "0_", "-1", "../..", [], {},
    ["x"], [2**64 - 1], {"x": 1}, {"²": ["0_0"]}, {"0": ["0_0", "0_-1"]}, {"in": {"0": -5}}, {"in": {"0": 2**63}}, {"a/b": {"0": 1}},
    {"in": {"9" * 11: 1}},
]  # fmt: skip


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.kind)
def test_a_field_with_any_hostile_value_is_refused_or_can_be_written_again_and_counted_on(record: JournalRecord) -> None:
    key, value = encode(record)
    plain = orjson.loads(value)
    for places in _places_in(plain):
        for hostile in HOSTILE:
            forged = orjson.loads(value)
            at = forged
            for place in places[:-1]:
                at = at[place]
            at[places[-1]] = hostile
            try:
                data = orjson.dumps(forged)
            except TypeError:
                data = json.dumps(forged).encode()
            state = JournalState()
            if not state.apply(key, data, 0):
                assert state.ignored == 1
                continue
            for read in (state.desired, state.assignment, state.stop_offsets, state.kept_offsets, *state.versions.values(),
                         *state.reports.values(), *state.measured.values()):  # fmt: skip
                if read is not None:
                    assert decode(*encode(read))[1] == read
                    for number in _numbers_in(orjson.loads(encode(read)[1])):
                        assert -1 <= number <= 2**63 - 2
                    following = DesiredState(state.generation + 1, "running", 1, 1)
                    assert state.apply(*encode(following), 1) or state.generation == 2**53


def _places_in(said: Any) -> list[list[Any]]:
    """The path to each field, and to each item of a collection."""
    inner = said.items() if isinstance(said, dict) else enumerate(said) if isinstance(said, list) else ()
    return [path for name, item in inner for path in ([name], *([name, *rest] for rest in _places_in(item)))]


def _numbers_in(said: Any) -> list[int]:
    if isinstance(said, dict | list):
        return [number for item in (said.values() if isinstance(said, dict) else said) for number in _numbers_in(item)]
    return [said] if type(said) is int else []


def test_a_forged_generation_is_logged_and_the_application_starts_again(caplog: pytest.LogCaptureFixture) -> None:
    """The next generation is one more: after 2**64 - 1 none could be written, and after 2**53 none be read."""
    for generation in (2**64 - 1, 2**53 + 1, 2**53, 2**40):
        state = _folded(DesiredState(3, "running", 1, 1))
        said = {"kind": "desired", "generation": generation, "state": "running", "version": 1, "instances": 1}
        assert not state.apply(b"control/desired", json.dumps(said).encode(), 1)
        assert state.apply(*encode(DesiredState(state.generation + 1, "running", 1, 1)), 2) and state.generation == 4
        assert "ignoring the journal record at offset 1" in caplog.text
        caplog.clear()


@given(st.binary(max_size=40), st.one_of(st.none(), st.binary(max_size=200)))
def test_no_bytes_whatever_break_the_fold(key: bytes, value: bytes | None) -> None:
    state = JournalState()
    state.apply(key, value, 0)
    assert state.position == 1


def test_unknown_fields_of_a_newer_release_are_skipped() -> None:
    key, value = encode(DesiredState(1, "running", 1, 1))
    said = orjson.loads(value) | {"colour": "blue"}
    assert decode(key, orjson.dumps(said))[1] == DesiredState(1, "running", 1, 1)


def test_records_of_a_passed_generation_say_nothing() -> None:
    passed = (InstanceHeartbeat(2, 0, "zombie", "running", 1), Assignment(2, {}), DesiredState(2, "paused", 1, 1))
    state = _folded(DesiredState(3, "running", 1, 1), *passed)
    assert state.reports == {} and state.assignment is None and state.desired == DesiredState(3, "running", 1, 1)
    assert state.ignored == 3


def test_a_new_generation_ends_the_old_ones_reports_but_keeps_versions_and_offsets() -> None:
    state = _folded(*RECORDS, DesiredState(3, "running", 3, 1))
    assert state.reports == {} and state.assignment is None and _owner(state, 0, 1) is None
    assert set(state.versions) == {3} and state.kept_offsets is not None and state.stop_offsets is not None


def test_a_report_may_come_before_its_generation_is_seen() -> None:
    early = InstanceHeartbeat(2, 0, "h", "running", 1)
    assert _folded(DesiredState(1, "running", 1, 1), early, DesiredState(2, "running", 1, 1)).reports == {0: early}


def test_the_first_claim_of_an_epoch_wins() -> None:
    state = _folded(Claim(1, 0, 5, "first"), Claim(1, 0, 5, "second"), Claim(1, 0, 4, "late"))
    assert _owner(state, 0, 5) == "first" and _owner(state, 0, 4) is None
    assert _owner(_folded(Claim(1, 0, 5, "first"), Claim(1, 0, 6, "next")), 0, 6) == "next"


def test_a_later_attempt_of_the_same_task_inherits_its_slot_and_no_other_task_does() -> None:
    first = Claim(1, 0, 5, "a", run="r", partition=2, attempt=7, place="x")
    other = Claim(1, 0, 5, "b", run="r", partition=3, attempt=8, place="y")
    again = Claim(1, 0, 5, "c", run="r", partition=2, attempt=9, place="y")
    state = _folded(first, other)
    assert state.claim_of(0, 5, "r") == first and state.claimed_by(2, 5, "r") == first and state.claimed_by(3, 5, "r") is None
    assert _folded(first, other, again).claim_of(0, 5, "r") == again


def test_claims_of_another_run_do_not_count() -> None:
    state = _folded(Claim(1, 0, 5, "old", run="r1"), Claim(1, 0, 0, "new", run="r2"))
    assert _owner(state, 0, 0, "r2") == "new" and _owner(state, 0, 0, "r1") is None and _owner(state, 0, 5, "r1") == "old"


def test_a_report_without_figures_keeps_those_before_it_and_their_place() -> None:
    state = _folded(InstanceHeartbeat(1, 0, "h", "running", 1, host="a", figures="{}"), InstanceHeartbeat(1, 0, "h", "paused", 2))
    assert (state.reports[0].state, state.reports[0].figures, state.reports[0].host) == ("paused", "{}", "a")


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.kind)
def test_a_tombstone_takes_its_record_away(record: JournalRecord) -> None:
    state = _folded(record)
    assert state.apply(record.key.encode(), None, 1) is True
    empty = JournalState()
    for attribute in ("desired", "assignment", "stop_offsets", "kept_offsets", "versions", "reports", "measured"):
        assert getattr(state, attribute) == getattr(empty, attribute)


@pytest.mark.parametrize("key", ["control/version/²", "instance/²", "instance/²/metrics"])
def test_a_deleted_key_that_only_looks_like_a_number_is_nothing(key: str) -> None:
    """An error here would end the thread that follows the journal."""
    assert not JournalState().apply(key.encode(), None, 0)


def claim(slot: int, owner: str, epoch: int = 0, *, run: str = "r") -> Claim:
    return Claim(1, slot, epoch, owner, run, partition=slot)


def desired(state: Any) -> DesiredState:
    return DesiredState(1, state, 1, 2, 0)


def folded(*records: Any) -> JournalState:
    state = JournalState()
    for offset, record in enumerate(records):
        state.apply(*encode(record), offset)
    return state


def test_a_slot_is_at_rest_when_its_last_claim_before_the_pause_has_ended() -> None:
    ended = InstanceHeartbeat(1, 0, "a", "running", 1, done=True)
    state = folded(desired("running"), claim(0, "a"), claim(1, "b"), ended, desired("paused"))
    assert [state.is_at_rest(slot) for slot in (0, 1)] == [True, False]
    assert not folded(desired("running"), claim(0, "a"), ended).is_at_rest(0), "it is to run: the next epoch may claim it"


def test_a_claim_after_the_pause_changes_nothing_because_its_worker_has_read_the_pause() -> None:
    ended = InstanceHeartbeat(1, 0, "a", "running", 1, done=True)
    state = folded(desired("running"), claim(0, "a"), ended, desired("paused"), claim(0, "b", 1), desired("paused"))
    assert state.is_at_rest(0)


def test_the_end_of_an_epoch_of_another_worker_does_not_end_a_claim() -> None:
    late = InstanceHeartbeat(1, 0, "a", "running", 1, done=True)
    assert not folded(desired("running"), claim(0, "a"), claim(0, "b", 1), late, desired("paused")).is_at_rest(0)
    other_slot = InstanceHeartbeat(1, 1, "b", "running", 1, done=True)
    assert not folded(desired("running"), claim(0, "b"), other_slot, desired("paused")).is_at_rest(0)


def test_a_claim_of_a_run_that_did_not_end_in_order_keeps_its_slot_busy() -> None:
    """Its worker may still be alive: only its own report, or a new generation, ends it."""
    ended = InstanceHeartbeat(1, 0, "b", "paused", 1)
    state = folded(desired("running"), claim(0, "a", run="old"), claim(0, "b", run="new"), ended, desired("paused"))
    assert not state.is_at_rest(0)
    state.apply(*encode(DesiredState(2, "running", 1, 2, 0)), 10)
    state.apply(*encode(DesiredState(2, "paused", 1, 2, 0)), 11)
    assert state.is_at_rest(0)


def test_a_late_report_of_the_pause_before_does_not_confirm_this_one() -> None:
    late = InstanceHeartbeat(1, 0, "b", "paused", 1)
    state = folded(desired("running"), claim(0, "a"), late, desired("paused"))
    assert not state.is_at_rest(0)
    state.apply(*encode(InstanceHeartbeat(1, 0, "c", "paused", 2)), 9)  # a later attempt of the task of a worker that was lost
    assert state.is_at_rest(0)


def test_a_slot_has_its_home_where_it_was_last_claimed_also_after_a_resume() -> None:
    """A resume starts another query, whose new worker processes swapped the slots and restored their stores."""
    state = folded(desired("running"), Claim(1, 0, 3, "a:1", "one", place="a"), desired("paused"), desired("running"))
    assert (state.home_of(0), state.home_of(1)) == ("a", None)
    state.apply(*encode(Claim(1, 0, 0, "b:1", "two", place="b")), 9)
    assert state.home_of(0) == "b"
    state.apply(*encode(DesiredState(2, "running", 1, 2, 0)), 10)
    assert state.home_of(0) is None, "the plan of the new generation knows it"
