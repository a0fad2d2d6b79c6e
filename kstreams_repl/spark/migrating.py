"""Rows of kept stores through a function of the user's, when an edit changes what their values mean: once each, all or none.

Numbered: 1. fence every instance that may still write · 2. read the changelogs to their settled ends, and convert: an error of the function
ends it here, with nothing changed · 3. in **one** transaction of the control id the converted rows go to the end of the changelogs, and the
new version is put in force in the journal. Before its commit everything is of the old version, after it everything is of the new one:
whoever starts next reads the journal, and its local stores catch up with their changelogs from their own positions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

from kstreams_repl.errors import TopologyError
from kstreams_repl.instance.control import LeaseWriter
from kstreams_repl.instance.take_over import fence_instances
from kstreams_repl.kafka.admin import Admin
from kstreams_repl.kafka.clients import ClientSettings
from kstreams_repl.kafka.journal import Beside
from kstreams_repl.kafka.reading import ranges_of, read_ranges
from kstreams_repl.serdes import Serde
from kstreams_repl.spark.generations import Generations, VersionText

TRANSACTION_MS = 600_000
"""How long the one transaction may take. A driver that dies in it holds its readers back until the next one takes the control id."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One store's conversion.

    Attributes:
        function: (key, value) -> the new value; None deletes the row.
    """

    store: str
    changelog: str
    key: Serde
    before: Serde
    after: Serde
    function: Callable[[Any, Any], Any]

    def rows(self, settings: ClientSettings, admin: Admin) -> Iterator[Beside]:
        """The last record of each key, converted; time and partition stay.

        Raises:
            TopologyError: the function or a serde raised; it names store and key.
        """
        last: dict[tuple[int, bytes | None], tuple[bytes | None, int]] = {}
        for at, batch in read_ranges(settings, ranges_of(admin, self.changelog, settled=True)):
            for key, value, timestamp in zip(batch.keys, batch.values, batch.timestamps, strict=True):
                last[at.partition, key] = value, timestamp
        for (partition, key), (value, timestamp) in last.items():
            if key is not None and value is not None:
                yield self.changelog, partition, key, self._converted(key, value), timestamp

    def _converted(self, key: bytes, value: bytes) -> bytes | None:
        said: Any = key
        try:
            said = self.key.deserialize(key)
            new = self.function(said, self.before.deserialize(value))
            return None if new is None else self.after.serialize(new)
        except Exception as error:
            raise TopologyError(
                f"store {self.store!r} cannot be migrated: the row of key {str(said)[:80]!r} raised {type(error).__name__}: {error}",
                hint="nothing was changed; mend the function and edit again",
                store=self.store,
            ) from error


def migrate_stores(
    migrations: Collection[Migration],
    version: VersionText,
    settings: ClientSettings,
    application_id: str,
    lease: LeaseWriter,
    *,
    timeout_ms: int,
) -> None:
    """Convert stores of an application at rest and put the version in force that reads them.

    Raises:
        TopologyError: a function raised; nothing was changed.
    """
    admin = Admin(settings)
    generations = Generations(settings, admin, application_id, lease, transaction_timeout_ms=TRANSACTION_MS)
    try:
        # 1. Fence.
        fence_instances(settings, application_id, range(generations.slots), timeout_ms=timeout_ms)
        # 2. Read and convert.
        there = admin.topics()
        rows = [row for migration in migrations if migration.changelog in there for row in migration.rows(settings, admin)]
        # 3. Rows and version in one transaction.
        generations.announce(version, beside=rows)
    finally:
        generations.close()
