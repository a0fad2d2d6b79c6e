"""`map_batches`: what the function is given and may return, by the test driver."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kstreams_repl as ks
from kstreams_repl.system.errors import StreamsProcessingError, TopologyError
from kstreams_repl.test_driver.driver import Mode

COLUMNS = {"user": int, "amount": int}


def driver_of(
    mapper: Callable[[Any], Any], *, columns: Any = None, serde: str = "json", mode: Mode = "exact", **config: Any
) -> ks.testing.TopologyTestDriver:
    builder = ks.StreamsBuilder()
    stream = builder.stream("in", key_serde="string", value_serde=serde)
    stream.map_batches(mapper, columns=columns, name="batches").to("out", key_serde="string", value_serde="json")
    return ks.testing.TopologyTestDriver(builder.build(), config, mode=mode)


def results(driver: ks.testing.TopologyTestDriver, *rows: Any, serde: str = "json") -> list[tuple[Any, Any]]:
    driver.create_input_topic("in", "string", serde).pipe_records(rows)
    return driver.create_output_topic("out", "string", "json").read_key_values()


def same(batch: Any) -> Any:
    return batch


def large(batch: Any) -> Any:
    return batch.filter(pc.greater(batch["amount"], 100))


@pytest.mark.parametrize("mode", ["exact", "deployed"])
def test_declared_fields_are_columns_and_a_filter_keeps_them(mode: Mode) -> None:
    driver = driver_of(large, columns=COLUMNS, mode=mode)
    rows = [("a", {"user": 1, "amount": 5}, 1), ("b", {"user": 2, "amount": 500, "more": [1]}, 2), ("c", {"amount": 101}, 3)]
    assert results(driver, *rows) == [("b", {"user": 2, "amount": 500}), ("c", {"user": None, "amount": 101})]


def test_the_batch_has_the_records_coordinates() -> None:
    seen: list[Any] = []

    def look(batch: Any) -> Any:
        seen.append(batch.to_pylist()[0])
        return batch

    driver = driver_of(look, columns={"user": int})
    driver.create_input_topic("in", "string", "json").pipe_input("a", {"user": 1}, timestamp=1500, headers=[("h", b"1"), ("n", None)])
    headers = [{"name": "h", "value": b"1"}, {"name": "n", "value": None}]
    at = datetime(1970, 1, 1, 0, 0, 1, 500_000)
    assert seen == [{"user": 1, "key": "a", "timestamp": at, "partition": 0, "offset": 0, "headers": headers, "row": 0}]


def test_key_timestamp_and_headers_are_those_of_the_input() -> None:
    driver = driver_of(lambda batch: pa.table({"n": pc.multiply(batch["amount"], 2)}), columns=COLUMNS)
    driver.create_input_topic("in", "string", "json").pipe_input("a", {"amount": 4}, timestamp=77, headers=[("h", b"1")])
    record = driver.create_output_topic("out", "string", "json").read_record()
    assert (record.key, record.value, record.timestamp, record.headers) == ("a", {"n": 8}, 77, [("h", b"1")])


@pytest.mark.parametrize(
    ("serde", "values"),
    [("string", ["x", None, "ü"]), ("long", [1, None, -5]), ("double", [1.5, None, 0.0]), ("json", [{"a": 1}, None, {"a": [1, 2]}])],
)
def test_without_declared_fields_the_column_value_has_the_objects(serde: str, values: list[Any]) -> None:
    driver = driver_of(same, serde=serde)
    assert results(driver, *((str(at), value, at) for at, value in enumerate(values)), serde=serde) == [
        (str(at), value) for at, value in enumerate(values)
    ]


def test_a_column_value_alone_is_the_value() -> None:
    driver = driver_of(lambda batch: pa.table({"value": pc.utf8_upper(batch["value"])}), serde="string")
    assert results(driver, ("a", "x", 1), ("b", None, 2), serde="string") == [("a", "X"), ("b", None)]


@pytest.mark.parametrize("mode", ["exact", "deployed"])
def test_a_deletion_stays_one(mode: Mode) -> None:
    assert results(driver_of(same, columns=COLUMNS, mode=mode), ("a", None, 1)) == [("a", None)]
    assert results(driver_of(large, columns=COLUMNS, mode=mode), ("a", None, 1)) == []


def test_rows_may_be_repeated() -> None:
    def twice(batch: Any) -> Any:
        return batch.take(pa.array(sorted([*range(batch.num_rows)] * 2)))

    assert results(driver_of(twice, columns={"user": int}), ("a", {"user": 1}, 1)) == [("a", {"user": 1})] * 2


@pytest.mark.parametrize("mode", ["exact", "deployed"])
def test_names_and_texts_may_have_any_characters(mode: Mode) -> None:
    name, text = "a{b}'c\"d", "\u00fc\n\"\\\x01"
    driver = driver_of(same, columns={name: str, "n": int, "yes": bool}, mode=mode)
    assert results(driver, ("a", {name: text, "n": -1, "yes": True}, 1)) == [("a", {name: text, "n": -1, "yes": True})]


def test_a_record_without_a_key_is_processed() -> None:
    assert results(driver_of(same, columns={"user": int}), (None, {"user": 1}, 1)) == [(None, {"user": 1})]


def test_polars_may_return_its_own_table() -> None:
    def polars(batch: Any) -> Any:
        return pl.DataFrame(pl.from_arrow(batch)).filter(pl.col("amount") > 1).select("row", "key", total=pl.col("amount") * 2)

    driver = driver_of(polars, columns=COLUMNS)
    assert results(driver, ("a", {"amount": 1}, 1), ("b", {"amount": 2}, 2)) == [("b", {"total": 4})]


def test_a_field_hides_the_coordinate_of_its_name() -> None:
    driver = driver_of(same, columns={"key": str, "row": int})
    assert results(driver, ("a", {"key": "own", "row": 7}, 1)) == [("a", {"key": "own", "row": 7})]


def test_types_of_columns_may_be_python_s_arrow_s_or_sql_s() -> None:
    columns = {"a": int, "b": "bigint", "c": "VARCHAR", "d": pa.list_(pa.int64()), "e": float, "f": bool, "g": "timestamp[ms]"}
    seen: list[Any] = []
    driver = driver_of(lambda batch: seen.append(batch.schema) or batch, columns=columns)
    value = {"a": 1, "b": 2, "c": "x", "d": [1], "e": 1.5, "f": True, "g": "2026-01-01T00:00:00"}
    assert results(driver, ("k", value, 1)) == [("k", value)]
    assert [str(seen[0].field(name).type) for name in columns] == [
        "int64", "int64", "string", "list<item: int64>", "double", "bool", "timestamp[ms]"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("mapper", "what", "hint"),
    [
        (lambda batch: 5, "expected an Arrow record batch or table, got int", "return the batch"),
        (lambda batch: batch.slice(1).drop_columns(["row"]), "returned 0 rows for 1 records, and no column 'row'", "one row per record"),
        (lambda batch: batch.select(["key", "row"]), "returned no column for the value", "return a column 'value'"),
        (lambda batch: pa.table({"row": [3], "x": [1]}), "a column 'row' that is not ascending from 0 to 0", "keep the column"),
        (lambda batch: pa.table({"row": ["a"], "x": [1]}), "a column 'row' of type string", "keep the column"),
        (lambda batch: pa.table({"key": ["z"], "x": [1]}), "returned other keys than it was given", "select_key"),
        (lambda batch: pa.table({"timestamp": [5], "x": [1]}), "returned other timestamps than it was given", "keep their time"),
        (lambda batch: pa.table([[1], [2]], names=["x", "x"]), "returned two columns of one name", "rename"),
    ],
)
def test_what_cannot_be_the_result_is_an_error_with_a_hint(mapper: Any, what: str, hint: str) -> None:
    driver = driver_of(mapper, columns={"user": int})
    with pytest.raises(StreamsProcessingError, match=what) as caught:
        results(driver, ("a", {"user": 1}, 1))
    assert caught.value.node == "batches"
    assert hint in str(caught.value.hint)


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ({"user": "x"}, r"does not fit the columns \(user int64\): Expected `int \| null`, got `str` - at `\$.user`"),
        ({"user": 1.0}, "got `float`"),
        ({"user": 2**63}, "too large"),
        ([1], "Expected `object"),
        (5, "Expected `object"),
    ],
)
def test_a_value_that_does_not_fit_is_an_error_with_its_record(value: Any, what: str) -> None:
    driver = driver_of(same, columns={"user": int})
    with pytest.raises(StreamsProcessingError, match=what) as caught:
        results(driver, ("a", {"user": 1}, 1), ("b", value, 2))
    assert (caught.value.fields["topic"], caught.value.fields["offset"]) == ("in", 1)
    assert "change columns=" in str(caught.value.hint)


def test_values_of_several_types_need_declared_fields() -> None:
    from kstreams_repl.engine.operators.batches.record_columns import typed

    with pytest.raises(ks.KStreamsError, match="the column 'value' cannot be made") as caught:
        typed([{"a": 1}, "x"], "json", "value")
    assert "columns=" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("mapper", "columns", "what"),
    [
        ("upper", None, "expected a function as mapper"),
        (lambda: 1, None, r"must take 1 arguments \(batch\)"),
        (same, {}, "expected columns as a dict of field names and types"),
        (same, ["user"], "expected columns as a dict of field names and types"),
        (same, {"user": "bigin"}, "does not know the type 'bigin' of the column 'user'"),
        (same, {"user": 5}, "does not know the type 5 of the column 'user'"),
        (same, {"user": pa.duration("s")}, "does not know the type .* of the column 'user'"),
    ],
)
def test_wrong_arguments_are_refused_when_the_topology_is_built(mapper: Any, columns: Any, what: str) -> None:
    with pytest.raises(TopologyError, match=what) as caught:
        driver_of(mapper, columns=columns)
    assert caught.value.hint


def test_the_key_is_kept_so_nothing_is_repartitioned() -> None:
    builder = ks.StreamsBuilder()
    stream = builder.stream("in", key_serde="string", value_serde="json").map_batches(same, columns={"user": int})
    stream.group_by_key(value_serde="json").count(store="counts")
    assert builder.build().internal_topics == frozenset() or "repartition" not in " ".join(builder.build().internal_topics)
