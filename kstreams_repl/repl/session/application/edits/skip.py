"""Skip the record at which an application failed, when the user asks for it: the checks, and the settings of the new version.

The settings of the new version name the record (``repl.skip.records``). The instance that reads the record
drops it, with its dead letter, in the commit that moves past it. So no record before or after it is lost, and every later start of
the application also skips it.
"""

from __future__ import annotations

from kstreams_repl.engine.config import SKIPPED_RECORDS, StreamsConfig
from kstreams_repl.repl.session.application.core import ApplicationCore
from kstreams_repl.repl.session.topics.records import ReadRecord
from kstreams_repl.system.errors import CallError, DeployError
from kstreams_repl.system.types import RecordPosition, TopicPartition


def skip(app: ApplicationCore, at: object) -> None:
    """Continue without a record, as `Application.skip`."""
    # 1. Refuse any record but the one at which it failed, and a failure that skipping would not fix.
    position = position_to_skip(app, at)
    if position is None:
        return
    # 2. Stop.
    app.stop()
    # 3. Write the version.
    program, config = app.history.program(), config_without(app, position)
    app.deployment.version = app.history.keep(program, app.topology, config)
    app.config = app.deployment.config = config
    dead_letters = config["errors.dead.letter.queue.topic.name"]
    target = f"the record goes to {dead_letters}" if dead_letters else "no dead-letter topic is set"
    app.client.report(f"{app.name} continues without {position}; {target}")
    # 4. Start.
    app.resume()


def position_to_skip(app: ApplicationCore, at: object) -> RecordPosition | None:
    """Return the position of the record to skip, checked (step 1); None if the application skips it already.

    Args:
        at: a record that was read, or its position as text.

    Raises:
        KStreamsError: `at` is neither.
        DeployError: the application did not fail at that record, the record is of a global table, was committed before or was
            skipped already.
    """
    position = _position(at)
    already = position in _skipped(app.config)
    error = app.error
    failed = None if error is None else error.record_position
    if already and failed != position:
        return None
    _refuse_unless_failed_there(app, position, failed, skipped_before=already)
    return position


def config_without(app: ApplicationCore, position: RecordPosition) -> StreamsConfig:
    """Return the settings that also skip this record. Records before the committed offsets need no entry any more."""
    left = [old for old in _skipped(app.config) if not _is_committed(app, old)]
    return app.config.with_(**{SKIPPED_RECORDS: ", ".join(map(str, [*left, position]))})


def _skipped(config: StreamsConfig) -> list[RecordPosition]:
    return [RecordPosition.parse(text) for text in config[SKIPPED_RECORDS].split(",") if text]


def _position(at: object) -> RecordPosition:
    if isinstance(at, ReadRecord):
        return RecordPosition(at.topic, at.partition, at.offset)
    try:
        return RecordPosition.parse(str(at))
    except ValueError as error:
        raise CallError(str(error), hint="app.skip('orders-0@17'), or app.skip(app.failed_record)") from error


def _refuse_unless_failed_there(
    app: ApplicationCore, position: RecordPosition, failed: RecordPosition | None, *, skipped_before: bool
) -> None:
    """Raise unless the application failed at this record and can continue without it.

    Raises:
        DeployError: it did not fail at that record, the record is of a global table, was committed before or was skipped already.
    """
    about = {"application": app.name, "topic": position.topic, "partition": position.partition, "offset": position.offset}
    if failed != position:
        what = f"it is {app.status}" if failed is None else f"it failed at {failed}"
        hint = "skip a record once the application has failed at it" if failed is None else f"app.skip('{failed}')"
        raise DeployError(f"{app.name} did not fail at {position}: {what}", hint=hint, **about)
    error = app.error
    node = None if error is None else error.node
    shared = app.topology.global_stores()
    if shared is not None and any(known.name == node for known in shared.nodes):
        raise DeployError(
            f"record {position} belongs to a global table, and cannot be skipped: no commit covers it",
            hint="set deserialization.exception.handler to 'continue', or delete the record from the topic",
            **about,
        )
    if skipped_before or _is_committed(app, position):
        why = "is skipped already" if skipped_before else "was processed and committed before"
        raise DeployError(
            f"record {position} {why}, and {app.name} still fails: the value that fails is in a store",
            hint="edit the function of the node: app.edit(builder), or set processing.exception.handler",
            **about,
        )


def _is_committed(app: ApplicationCore, position: RecordPosition) -> bool:
    at = TopicPartition(*position[:2])
    committed = app.client.admin.committed_offsets(app.name, [at]).get(at)
    return committed is not None and committed.offset > position.offset
