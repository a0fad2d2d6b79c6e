"""Both engines against a dict: any sequence of puts, deletes, ranges, commits and rollbacks gives the same rows."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kstreams_repl.engine.stores.engine.environment import Environment, after, after_prefix
from kstreams_repl.engine.stores.engine.lmdb import LmdbEnvironment
from kstreams_repl.engine.stores.engine.memory import MemoryEnvironment

keys = st.one_of(
    st.binary(max_size=3),
    st.sampled_from([b"k" * size for size in (510, 511, 512, 600)]),
    st.sampled_from([b"k" * 511 + b"a", b"k" * 511 + b"b", b"k" * 509 + b"z", b"\x00" * 520]),
)
bounds = st.one_of(st.none(), keys)
steps = st.one_of(
    st.tuples(st.just("put"), keys, st.binary(max_size=4)),
    st.tuples(st.just("delete"), keys),
    st.tuples(st.just("range"), bounds, bounds, st.booleans(), st.one_of(st.none(), st.integers(0, 4))),
    st.tuples(st.just("delete_range"), keys, keys),
    st.tuples(st.just("commit")),
    st.tuples(st.just("rollback")),
)


@contextmanager
def made(kind: str) -> Iterator[Environment]:
    if kind == "memory":
        yield MemoryEnvironment()
    else:
        with tempfile.TemporaryDirectory() as directory:
            environment = LmdbEnvironment(directory, map_bytes=64 << 20)
            try:
                yield environment
            finally:
                environment.close()


def check(kind: str, program: list[tuple[object, ...]]) -> None:
    with made(kind) as environment:
        engine = environment.engine("e")
        model: dict[bytes, bytes] = {}
        committed: dict[bytes, bytes] = {}
        for number, (step, *arguments) in enumerate(program):
            if step == "put":
                engine.put(*arguments)
                model[arguments[0]] = arguments[1]
            elif step == "delete":
                engine.put(arguments[0], None)
                model.pop(arguments[0], None)
            elif step == "range":
                low, high, reverse, limit = arguments
                inside = [row for row in model.items() if (low is None or row[0] >= low) and (high is None or row[0] < high)]
                expected = sorted(inside, reverse=reverse)
                assert list(engine.range(low, high, reverse, limit)) == expected[:limit]
            elif step == "delete_range":
                low, high = arguments
                engine.delete_range(low, high)
                for key in [key for key in model if low <= key < high]:
                    del model[key]
            elif step == "commit":
                environment.commit({"c-0": number}, number)
                committed = dict(model)
                assert environment.positions["c-0"] == number and environment.commit_id == number
            else:
                environment.rollback()
                model = dict(committed)
            for key in {*model, *committed}:
                assert engine.get(key) == model.get(key)
        assert list(engine.range()) == sorted(model.items())


@settings(max_examples=150, deadline=None)
@given(st.lists(steps, max_size=30))
def test_memory_engine_equals_a_dict(program: list[tuple[object, ...]]) -> None:
    check("memory", program)


@settings(max_examples=80, deadline=None)
@given(st.lists(steps, max_size=30))
def test_lmdb_engine_equals_a_dict(program: list[tuple[object, ...]]) -> None:
    check("lmdb", program)


def test_an_open_iterator_does_not_see_later_writes(environment: Environment) -> None:
    engine = environment.engine("e")
    engine.put(b"a", b"1")
    environment.commit({}, 0)
    engine.put(b"b", b"2")
    rows = engine.range()
    engine.put(b"c", b"3")
    engine.put(b"a", None)
    assert list(rows) == [(b"a", b"1"), (b"b", b"2")]


def test_engines_of_one_environment_commit_together(environment: Environment) -> None:
    one, two = environment.engine("one"), environment.engine("two")
    one.put(b"k", b"1")
    environment.set_attribute("note", b"x")
    environment.commit({"c-0": 5}, 3)
    one.put(b"k", b"2")
    two.put(b"k", b"2")
    environment.set_attribute("note", b"y")
    environment.rollback()
    assert (one.get(b"k"), two.get(b"k"), environment.attribute("note")) == (b"1", None, b"x")
    assert (dict(environment.positions), environment.commit_id) == ({"c-0": 5}, 3)


def test_restore_writes_rows_and_positions_past_the_uncommitted_writes(environment: Environment) -> None:
    engine = environment.engine("e")
    environment.restore("e", [b"a", b"b", b"a"], [b"1", b"2", b"3"], positions={"c-0": 3})
    environment.restore("e", [b"b"], [None], positions={"c-0": 4})
    environment.rollback()
    assert list(engine.range()) == [(b"a", b"3")]
    assert environment.positions["c-0"] == 4


@pytest.mark.parametrize("size", [510, 511, 512, 600, 1 << 20])
def test_keys_of_any_length_keep_their_order(environment: Environment, size: int) -> None:
    engine = environment.engine("e")
    key = b"p" * (size - 1)
    for last in (b"c", b"a", b"b"):
        engine.put(key + last, b"v" * size)
    engine.put(b"p", b"short")
    engine.put(b"q", b"after")
    environment.commit({}, 0)
    assert [row[0] for row in engine.range()] == [b"p", key + b"a", key + b"b", key + b"c", b"q"]
    assert engine.get(key + b"b") == b"v" * size
    assert [row[0] for row in engine.range(key + b"b", key + b"c")] == [key + b"b"]
    assert [row[0] for row in engine.range(key + b"a", b"q", True)] == [key + b"c", key + b"b", key + b"a"]
    engine.put(key + b"b", None)
    environment.commit({}, 1)
    assert engine.get(key + b"b") is None and engine.get(key + b"a") is not None


def test_a_deleted_range_may_end_inside_a_bucket_of_long_keys(environment: Environment) -> None:
    engine = environment.engine("e")
    long = b"k" * 520
    for key in (b"a", long + b"1", long + b"2", long + b"3", b"z"):
        engine.put(key, key[-1:])
    environment.commit({}, 0)
    engine.delete_range(b"b", long + b"2")
    environment.commit({}, 1)
    assert [value for _, value in engine.range()] == [b"a", b"2", b"3", b"z"]
    engine.delete_range(long + b"3", b"zz")
    environment.commit({}, 2)
    assert [value for _, value in engine.range()] == [b"a", b"2"]


def test_bounds_after_a_key_and_a_prefix() -> None:
    assert after(b"a") == b"a\x00"
    assert after_prefix(b"a\xff\xff") == b"b"
    assert after_prefix(b"\xff") is None


@pytest.mark.parametrize("reverse", [False, True])
def test_an_iterator_that_is_kept_over_commits_goes_on_with_what_it_began_with(environment: Environment, reverse: bool) -> None:
    engine = environment.engine("e")
    for number in range(1_000):
        engine.put(b"%03d" % number, b"old")
    environment.commit({}, 0)
    engine.put(b"500", b"new")
    rows = engine.range(reverse=reverse)
    seen = [next(rows)]
    for commit in range(1, 4):
        for number in range(commit, 1_000, 2):
            engine.put(b"%03d" % number, None)
        environment.commit({}, commit)
        environment.engine(f"made after {commit}")
        seen.append(next(rows))
    seen.extend(rows)
    assert seen == sorted([(b"%03d" % number, b"new" if number == 500 else b"old") for number in range(1_000)], reverse=reverse)
    assert list(engine.range()) == [(b"000", b"old")]
