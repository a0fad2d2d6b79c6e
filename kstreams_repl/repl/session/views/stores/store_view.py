"""`StoreView`: a store of an application, for reading. It shows the last commit; a read neither contacts nor blocks instances."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kstreams_repl.engine.stores.layers.codec import Codec
from kstreams_repl.engine.stores.log.log_serdes import with_log_serdes
from kstreams_repl.engine.topology.store_builder import StoreBuilder
from kstreams_repl.pictures.graph.picture import store_detail
from kstreams_repl.pictures.wording import counted
from kstreams_repl.repl.inspection.result import SqlResult
from kstreams_repl.repl.inspection.sandbox import quote_identifier
from kstreams_repl.repl.session.application.core import ApplicationCore
from kstreams_repl.repl.session.views.stores.local_queries import value_at, value_from_server
from kstreams_repl.repl.session.views.stores.store_reader import POINT_READS, count_rows, read_store
from kstreams_repl.repl.session.views.tables.spark_frames import store_frame
from kstreams_repl.repl.session.views.tables.sql_query import run_query
from kstreams_repl.system.errors import InvalidStateStoreError, KStreamsError
from kstreams_repl.system.types import ValueAndTimestamp, VersionedRecord

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from kstreams_repl.host.spark.dataframe_reader import DataFrame


class StoreView:
    """A store of an application. Evaluate it to see its first rows.

    Example:
        >>> app.store("counts").get("UA")     # doctest: +SKIP
        58665
        >>> app.store("counts").df()          # doctest: +SKIP
    """

    def __init__(self, application: ApplicationCore, builder: StoreBuilder) -> None:
        self._application = application
        self._builder = builder

    @property
    def name(self) -> str:
        return self._builder.name

    @property
    def kind(self) -> str:
        return str(self._builder.kind)

    def count(self) -> int | None:
        """Return the approximate number of rows on this machine; None when it has no state here.

        Example:
            >>> count = app.store("counts").count()
        """
        return count_rows(self._application.config, self._application.topology, self._builder)

    def get(self, key: object) -> Any:
        """Return the value of a key (of a versioned store the latest), None when there is none. For key-value stores.

        On a cluster with query servers (``application.server``) it is one request to the owner of the key, else a read of the changelog.

        Raises:
            InvalidStateStoreError: the store is of another kind.

        Example:
            >>> app.store("counts").get("a")
            2
        """
        stamped = POINT_READS.get(self._builder.kind)
        if stamped is None:
            raise InvalidStateStoreError(
                f"get() expected a key-value store, got the {self.kind} store {self.name!r}",
                hint="read its rows: rows(), df() or app.sql()",
                store=self.name,
            )
        try:
            return _value(value_at(self._application, self._builder, key))
        except InvalidStateStoreError:  # in memory, or on other hosts
            if self._application.as_of:
                raise
        try:
            return _value(value_from_server(self._application, self.name, key))
        except KStreamsError:  # no server, or one that cannot answer
            return self._from_changelog(key, stamped)

    def _from_changelog(self, key: object, stamped: bool) -> object:
        app = self._application
        builder = with_log_serdes(self._builder, app.config)
        data = builder.key_serde.serialize(key)
        parts = read_store(app.client.admin, app.config, app.topology, builder, limit=None).parts
        row = next((value for part in parts for own, value in zip(part.keys, part.values, strict=True) if own == data), None)
        if row is None:
            return None
        decoded = Codec(builder.value_serde, timestamped=stamped).decode(row)
        return decoded[0] if stamped else decoded

    def rows(self, columns: str = "*", *, store_limit: int | None = None) -> SqlResult:
        """Return its rows as a query result.

        Args:
            columns: the columns, as in SQL.
            store_limit: number of rows of each task; None: all.

        Example:
            >>> app.store("counts").rows("key, value").fetchall()
            [('a', 2), ('b', 3)]
        """
        place = f"{quote_identifier(f'application {self._application.name}')}.{quote_identifier(self.name)}"
        app = self._application
        return run_query(app.client, app.registry, f"SELECT {columns} FROM {place}", store_limit=store_limit)

    def df(self) -> pd.DataFrame:
        """Return its rows as a pandas DataFrame.

        Example:
            >>> len(app.store("counts").df())
            2
        """
        return self.rows().df()

    def pl(self) -> Any:
        """Return its rows as a polars DataFrame.

        Example:
            >>> len(app.store("counts").pl())
            2
        """
        return self.rows().pl()

    def arrow(self) -> pa.Table:
        """Return its rows as an Arrow table.

        Example:
            >>> app.store("counts").arrow().num_rows
            2
        """
        return self.rows().arrow()

    def spark_frame(self) -> DataFrame:
        """Return its rows as a Spark DataFrame, read from its changelog by Spark's workers: see `Session.spark_frame`.

        Example:
            >>> app.store("counts").spark_frame().count()
            2
        """
        return store_frame(self._application.client, self._application, self._builder)

    def __repr__(self) -> str:
        count = self.count()
        rows = "no state here" if count is None else f"~{counted(count, 'row')}"
        return f"StoreView({self.name!r} of {self._application.name!r}, {store_detail(self._builder)}, {rows})"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return self.rows()._repr_mimebundle_()


def _value(found: object) -> object:
    return found.value if isinstance(found, ValueAndTimestamp | VersionedRecord) else found
