"""Savepoints: an application's state and offsets as of one commit, in a directory.

A savepoint holds, for each store with a changelog, the last record of each key (of a versioned store: all of them), the records
of repartition topics that were not processed yet, and the committed offsets of all inputs with their metadata. It is taken
between two commits, so the three are consistent (`savepoint_writer`). It holds no code. Its topic names omit the application, so
it can also start an application of another name (`savepoint_start`).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.serdes import resolve
from kstreams_repl.engine.topology.differences.node_diff import serde_name
from kstreams_repl.engine.topology.names import validate_name
from kstreams_repl.engine.topology.store_builder import StoreBuilder
from kstreams_repl.host.kafka.exact_metadata import OffsetAndMetadata
from kstreams_repl.pictures.table import Table
from kstreams_repl.pictures.wording import moment
from kstreams_repl.system.errors import RecordingError, did_you_mean
from kstreams_repl.system.types import JsonMapping

FORMAT, VERSION = "kstreams-savepoint", 1
FOLDER = "savepoints"
MANIFEST, RECORDS = "savepoint.json", "records.jsonl"

Offsets = Mapping[str, Mapping[int, OffsetAndMetadata]]


@dataclass(frozen=True, slots=True)
class Savepoint:
    """State and offsets of an application as of one commit. Get one from `Application.savepoint`; pass it to `Session.deploy`.

    Attributes:
        name, application: its name, and the application it was taken from.
        at: when it was taken (seconds since 1970).
        path: its directory. A copy of it elsewhere works too: ``from_savepoint="/path/of/the/copy"``.
        stores: by name, the settings that decide how its rows are read.
        offsets: of input topics, by topic and partition: offset and metadata.
        internal: of repartition topics, by name without the application: metadata by partition.
        topic_ids: of the input topics.
        records: how many records it holds.
    """

    name: str
    application: str
    at: float
    path: Path
    stores: Mapping[str, JsonMapping]
    offsets: Offsets
    internal: Mapping[str, Mapping[int, str]]
    topic_ids: Mapping[str, str]
    records: int

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Savepoint:
        """Read a savepoint's description; its records are read when an application starts from it.

        Args:
            path: directory of the savepoint, or of a copy.

        Raises:
            RecordingError: the directory holds no savepoint, or its description was changed.

        Example:
            >>> import kstreams_repl as ks
            >>> taken = app.savepoint("before-loading")
            >>> ks.reports.Savepoint.load(taken.path).name
            'before-loading'
        """
        folder = Path(path)
        try:
            manifest = orjson.loads((folder / MANIFEST).read_bytes())
            if manifest["format"] != FORMAT or manifest["version"] != VERSION:
                raise ValueError(f"not a savepoint of version {VERSION}")
            offsets = {
                topic: {int(n): (_offset(at[0]), str(at[1])) for n, at in of.items()} for topic, of in manifest["offsets"].items()
            }
            internal = {topic: {int(n): str(text) for n, text in of.items()} for topic, of in manifest["internal"].items()}
            stores = {str(name): dict(shape) for name, shape in manifest["stores"].items()}
            ids = {str(topic): str(known) for topic, known in manifest["topic_ids"].items()}
            name, application = validate_name(manifest["name"], "savepoint"), validate_name(manifest["application"], "application")
            return cls(name, application, float(manifest["at"]), folder, stores, offsets, internal, ids, int(manifest["records"]))
        except (OSError, ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
            raise RecordingError(
                f"{folder} is not a savepoint: {error}", hint="session.savepoints() lists the savepoints", path=str(folder)
            ) from error

    def delete(self) -> None:
        """Remove the savepoint's directory. Deleting twice does nothing.

        Example:
            >>> taken = app.savepoint("not-needed")
            >>> taken.delete()
        """
        shutil.rmtree(self.path, ignore_errors=True)

    def __repr__(self) -> str:
        return f"Savepoint({self.name!r} of {self.application}, {moment(self.at)}, {len(self.stores)} stores, {self.records:,} records)"


def find_savepoint(directory: Path, wanted: Any, application: str) -> Savepoint:
    """Return a savepoint, given itself, the path of its directory, or its name.

    The name is that of a savepoint of this application, or ``"application/name"``.

    Args:
        directory: of the session.

    Raises:
        RecordingError: there is none.
    """
    if isinstance(wanted, Savepoint):
        return wanted
    text = os.fspath(wanted)
    if (Path(text) / MANIFEST).exists():
        return Savepoint.load(text)
    owner, _, name = text.rpartition("/")
    known = {f"{saved.application}/{saved.name}": saved for saved in all_savepoints(directory)}
    found = known.get(f"{owner or application}/{name}")
    if found is None:
        hint = did_you_mean(text, [*known, *(k.partition("/")[2] for k in known)]) or "session.savepoints() lists the savepoints"
        raise RecordingError(f"there is no savepoint {text!r} of {owner or application}", hint=hint, path=text)
    return found


def all_savepoints(directory: Path) -> list[Savepoint]:
    """Return the savepoints in the session's directory, by application and time."""
    savepoints = [Savepoint.load(path.parent) for path in sorted((directory / FOLDER).glob(f"*/[!.]*/{MANIFEST}"))]
    return sorted(savepoints, key=lambda saved: (saved.application, saved.at))


def savepoints_table(directory: Path) -> Table:
    """Return the table of `Session.savepoints`."""
    rows = [
        (s.application, s.name, moment(s.at), len(s.stores), s.records)
        for s in all_savepoints(directory)
    ]
    note = 'session.deploy(builder, name, from_savepoint="application/name") starts from one'
    return Table.of(("application", "savepoint", "taken", "stores", "records"), rows, note=note if rows else "no savepoints")


def row_format(store: StoreBuilder, config: StreamsConfig) -> dict[str, object]:
    """Return the settings that decide how rows are read."""
    return {
        "kind": str(store.kind),
        "key serde": serde_name(resolve(store.key_serde, config["default.key.serde"])),
        "value serde": serde_name(resolve(store.value_serde, config["default.value.serde"])),
        "window size": store.window_size_ms,
    }


def _offset(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise ValueError(f"expected an offset, got {str(value)[:40]!r}")
    return value
