"""Opens a debugger of a record of an application: finds the record, its task and what the task had before it."""

from __future__ import annotations

from functools import cache

from kstreams_repl.repl.session.application.core import ApplicationCore
from kstreams_repl.repl.session.views.past.debug.debugger import Debugger
from kstreams_repl.repl.session.views.past.moments import moment_of
from kstreams_repl.repl.session.views.past.replay.before_record import before_record
from kstreams_repl.repl.session.views.past.state.ran_versions import RanVersions
from kstreams_repl.system.errors import CallError, InvalidStateStoreError
from kstreams_repl.system.types import RecordPosition, TopicPartition

FURTHER = 1_000
"""How many offsets of each partition a debugger can run on beyond the commit with its record."""


def debugger_of(app: ApplicationCore, record: str | RecordPosition, *, calls: bool) -> Debugger:
    """Return a debugger of a record, as `Application.debug`."""
    position = moment_of(record).record
    if position is None:
        raise CallError(
            f"expected a record, got {record!r}", hint="TOPIC-PARTITION@OFFSET: app.debug('orders-0@17')", argument="record"
        )
    inputs = before_record(RanVersions(app), position, further=FURTHER, calls=calls)
    if position.offset not in inputs.records[TopicPartition(position.topic, position.partition)].offsets:
        raise InvalidStateStoreError(
            f"there is no record {position}", hint="it may be a transaction's marker, or not be written yet"
        )
    program = app.history.program(inputs.ran.number)
    return Debugger(
        inputs.spec,
        position,
        starts=inputs.starts,
        records=inputs.records,
        state=inputs.state,
        global_stores=inputs.global_stores,
        results=inputs.answers,
        partitions=cache(app.client.admin.partitions),
        topology=inputs.ran.app.topology,
        program=None if program.missing else program.text or None,
    )
