"""`StoreView`: a store of an application, for reading. It shows the last commit; a read neither contacts nor blocks instances."""

from __future__ import annotations

from typing import Any

from kstreams_repl import serdes
from kstreams_repl.deprecation import renamed
from kstreams_repl.display.picture import store_detail
from kstreams_repl.errors import InvalidStateStoreError
from kstreams_repl.inspection.result import SqlResult
from kstreams_repl.inspection.sandbox import quote_identifier
from kstreams_repl.session.application.read_only import ReadOnlyApplication
from kstreams_repl.session.views.spark_frames import store_frame
from kstreams_repl.session.views.store_reader import POINT_READS, count_rows, get_row, read_store
from kstreams_repl.stores.codec import Codec
from kstreams_repl.topology.stores import StoreBuilder


class StoreView:
    """A store of an application. Evaluate it to see its first rows.

    Example:
        >>> app.store("counts").get("UA")     # doctest: +SKIP
        58665
        >>> app.store("counts").df()          # doctest: +SKIP
    """

    def __init__(self, application: ReadOnlyApplication, builder: StoreBuilder) -> None:
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

    def get(self, key: Any) -> Any:
        """Return the value of a key (of a versioned store the latest), None when there is none. For key-value stores.

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
        config = self._application.config
        data = serdes.resolve(self._builder.key_serde, config["default.key.serde"]).serialize(key)
        row = None if data is None else self._row(data)
        if row is None:
            return None
        decoded = Codec(serdes.resolve(self._builder.value_serde, config["default.value.serde"]), timestamped=stamped).decode(row)
        return decoded[0] if stamped else decoded

    def _row(self, key: bytes) -> bytes | None:
        """Return the stored bytes of a key, from the local state, else (in memory, on other hosts) from the changelog."""
        app, builder = self._application, self._builder
        if builder.on_disk(app.config["default.dsl.store"]):
            try:
                return get_row(app.config, app.topology, builder, key)
            except InvalidStateStoreError:  # no state on this machine
                pass
        parts = read_store(app.client.admin, app.config, app.topology, builder, limit=None).parts
        return next((value for part in parts for own, value in zip(part.keys, part.values, strict=True) if own == key), None)

    @renamed(rows="store_limit")
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
        return self._application.sql(f"SELECT {columns} FROM {place}", store_limit=store_limit)

    def df(self) -> Any:
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

    def arrow(self) -> Any:
        """Return its rows as an Arrow table.

        Example:
            >>> app.store("counts").arrow().num_rows
            2
        """
        return self.rows().arrow()

    def spark_frame(self) -> Any:
        """Return its rows as a Spark DataFrame, read from its changelog by Spark's workers: see `Session.spark_frame`.

        Example:
            >>> app.store("counts").spark_frame().count()
            2
        """
        return store_frame(self._application.client, self._application, self._builder)

    def __repr__(self) -> str:
        count = self.count()
        rows = "no state here" if count is None else f"~{count:,} rows"
        return f"StoreView({self.name!r} of {self._application.name!r}, {store_detail(self._builder)}, {rows})"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return self.rows()._repr_mimebundle_()
