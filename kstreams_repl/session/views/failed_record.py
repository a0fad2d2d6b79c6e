"""The record at which an application failed: show it with its error, and skip it when the user asks for it.

`skip`, numbered: 1. reject any record but the one at which it failed, and a failure that skipping would not fix · 2. stop ·
3. write a version whose settings name the record (``repl.skip.records``) · 4. start. The instance that reads the record drops it,
with its dead letter, in the commit that moves past it. So no record before or after it is lost, and every later start of the
application also skips it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kstreams_repl.config import SKIPPED_RECORDS
from kstreams_repl.display.markup import one_line
from kstreams_repl.errors import DeployError, KStreamsError
from kstreams_repl.kafka.reading import OffsetRange, ranges_of
from kstreams_repl.session.source.source_slice import Program
from kstreams_repl.session.topics.read import decoded, rows_of
from kstreams_repl.session.topics.records import ReadRecord
from kstreams_repl.types import RecordPosition, TopicPartition

if TYPE_CHECKING:
    from kstreams_repl.session.application.application import Application
    from kstreams_repl.session.session import Session

KEY_CHARACTERS, VALUE_CHARACTERS = 200, 600


def place_of(error: BaseException | None) -> RecordPosition | None:
    """Return the topic, partition and offset of the record that an error is about; None if it is about no record."""
    fields: dict[str, Any] = getattr(error, "fields", {})
    topic, partition, offset = (fields.get(name) for name in ("topic", "partition", "offset"))
    if not isinstance(topic, str) or not isinstance(partition, int) or not isinstance(offset, int) or partition < 0 or offset < 0:
        return None
    return RecordPosition(topic, partition, offset)


def record_at(session: Session, place: RecordPosition) -> ReadRecord | None:
    """Return the record at an offset, decoded as far as possible (else its bytes); None if the broker no longer has it."""
    at = TopicPartition(place.topic, place.partition)
    (there,) = ranges_of(session.admin, place.topic, partitions=[place.partition], isolation="read_uncommitted")
    if not there.start <= place.offset < there.end:
        return None
    found, _ = rows_of(session.admin, [OffsetRange(at, place.offset, place.offset + 1)], 1, first=True)
    records = decoded(found, place.topic, *session.serdes_of(place.topic))
    return records[0] if records and records[0].offset == place.offset else None


def with_record(session: Session, name: str, error: KStreamsError) -> KStreamsError:
    """Return an application's error with its record: in ``error.record`` and in its message, shortened and escaped."""
    place = place_of(error)
    if place is None or "application" in error.fields:
        return error
    error.fields["application"] = name
    try:
        record = record_at(session, place)
    except KStreamsError:  # the broker or the topic is unavailable: the error itself matters more
        return error
    if record is not None:
        error.fields["record"] = record
    error.message += f"\n  record {place}: {shown(record)}"
    error.args = (error.message,)
    return error


def shown(record: ReadRecord | None) -> str:
    """Return key and value on one line, shortened, with terminal control characters escaped."""
    if record is None:
        return "the broker no longer has it"
    return f"key {one_line(repr(record.key), limit=KEY_CHARACTERS)}, value {one_line(repr(record.value), limit=VALUE_CHARACTERS)}"


def skip(app: Application, at: Any) -> Application:
    """Skip a record, as `Application.skip`."""
    place = _place(at)
    already = [RecordPosition.parse(text) for text in app.config[SKIPPED_RECORDS].split(",") if text]
    # 1. Refuse.
    failed = place_of(app.error) if app.status == "failed" else None
    if place in already and failed != place:
        return app
    _refuse_unless_failed_there(app, place, failed, skipped_before=place in already)
    # 2. Stop.
    app.stop()
    # 3. Write the version. Records before the committed offsets need no entry any more.
    left = [old for old in already if not _is_committed(app, old)]
    config = app.config.with_(**{SKIPPED_RECORDS: ", ".join(map(str, [*left, place]))})
    app._deployment.version = app._history.keep(_program(app), app.topology, config)
    app.config = app._deployment.config = config
    dead = app.config["errors.dead.letter.queue.topic.name"]
    app.session.report(
        f"{app.name} goes on without {place}" + (f"; the record goes to {dead}" if dead else "; no dead-letter topic is set")
    )
    # 4. Start.
    return app.resume()


def _place(at: Any) -> RecordPosition:
    if isinstance(at, ReadRecord):
        return RecordPosition(at.topic, at.partition, at.offset)
    try:
        return RecordPosition.parse(str(at))
    except ValueError as error:
        raise KStreamsError(str(error), hint="app.skip('orders-0@17'), or app.skip(app.failed_record)") from error


def _refuse_unless_failed_there(app: Application, place: RecordPosition, failed: RecordPosition | None, *, skipped_before: bool) -> None:
    """Raise unless the application failed at this record and can continue without it.

    Raises:
        DeployError: it did not fail at that record, the record is of a global table, was committed before or was skipped already.
    """
    about = {"application": app.name, "topic": place.topic, "partition": place.partition, "offset": place.offset}
    if failed != place:
        what = f"it is {app.status}" if failed is None else f"it failed at {failed}"
        hint = "only the record at which an application failed can be skipped" if failed is None else f"app.skip('{failed}')"
        raise DeployError(f"{app.name} did not fail at {place}: {what}", hint=hint, **about)
    error = app.error
    node = None if error is None else error.fields.get("node")
    shared = app.topology.global_stores()
    if shared is not None and any(known.name == node for known in shared.nodes):
        raise DeployError(
            f"{place} is a record of a global table, which belongs to no commit",
            hint="set deserialization.exception.handler to 'continue', or delete the record from the topic",
            **about,
        )
    if skipped_before or _is_committed(app, place):
        why = "was skipped already" if skipped_before else "was processed and committed before"
        raise DeployError(
            f"{place} {why}, and {app.name} fails still: the value that fails is kept in a store",
            hint="edit the function of the node: app.edit(builder), or set processing.exception.handler",
            **about,
        )


def _is_committed(app: Application, place: RecordPosition) -> bool:
    at = TopicPartition(*place[:2])
    committed = app.session.admin.committed_offsets(app.name, [at]).get(at)
    return committed is not None and committed.offset > place.offset


def _program(app: Application) -> Program:
    """Return the program of the version that runs, without its settings."""
    saved = app._history.saved(app.versions[-1].number) if app.versions else None
    return Program("", ("its text",)) if saved is None else Program(saved.text.partition("\n")[2], saved.missing)
