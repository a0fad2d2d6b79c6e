"""The named processor behaviours of the conformance cases, as Processor-API processors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kstreams_repl.engine.processor import FixedKeyProcessor, Processor, PunctuationType, Record
from kstreams_repl.system.types import VersionedRecord, Windowed
from workshop.conformance.vocabulary import PREDICATES, num, text


def processor_supplier(behaviour: str, params: dict[str, Any] | None, stores: Sequence[str]) -> Callable[[], Processor]:
    """Return a supplier of the named behaviour; raise for an unknown name, when the case is built."""
    if behaviour not in _ON_RECORD:
        raise KeyError(f"unknown processor behaviour {behaviour!r}")
    return lambda: _Behaviour(behaviour, params or {}, list(stores))


def fixed_key_supplier(behaviour: str, params: dict[str, Any] | None, stores: Sequence[str]) -> Callable[[], FixedKeyProcessor]:
    """Return a supplier of the named behaviour for `process_values`."""
    if behaviour not in _FIXED:
        raise KeyError(f"unknown fixed-key behaviour {behaviour!r}")
    return lambda: _FixedBehaviour(behaviour, params or {}, list(stores))


class _Behaviour(Processor):
    def __init__(self, behaviour: str, params: dict[str, Any], stores: list[str]) -> None:
        self.behaviour, self.params, self.stores = behaviour, params, stores
        self.calls = 0
        self._work = _ON_RECORD[behaviour]

    def init(self, context: Any) -> None:
        self.context = context
        start = _ON_INIT.get(self.behaviour)
        if start is not None:
            start(self)

    def process(self, record: Record) -> None:
        self._work(self, record)

    @property
    def store(self) -> Any:
        return self.context.get_state_store(self.stores[0])

    def out(self, key: object, value: object, timestamp: int) -> None:
        self.context.forward(Record(key, value, timestamp))

    @property
    def punctuation(self) -> PunctuationType:
        return PunctuationType(self.params.get("type", "STREAM_TIME"))

    def every(self, callback: Callable[[int], None], punctuation: PunctuationType | None = None, start: int | None = None) -> Any:
        return self.context.schedule(self.params.get("every", 10), punctuation or self.punctuation, callback, start=start)


def _tick(self: _Behaviour, start: int | None = None) -> None:
    self.every(lambda now: self.out("tick", f"{self.punctuation.value}@{now}", now), start=start)


def _tick_n(self: _Behaviour) -> None:
    def call(now: int) -> None:
        self.out("tick", f"{self.punctuation.value}@{now}", now)
        self.calls += 1
        if self.calls >= self.params.get("n", 1):
            schedule.cancel()

    schedule = self.every(call)


def _n_ticks(self: _Behaviour) -> None:
    for index in range(self.params.get("n", 2)):
        self.every(lambda now, index=index: self.out(f"t{index}", f"@{now}", now))  # type: ignore[misc]


def _where(self: _Behaviour) -> str:
    at = self.context.record_metadata()
    return "none" if at is None else f"{text(at.topic)}/{at.partition}/{at.offset}"


def _meta_tick(self: _Behaviour) -> None:
    self.every(lambda now: self.out("meta", f"{_where(self)} st={self.context.current_stream_time_ms()}", now))


def _emit_counts(self: _Behaviour) -> None:
    def call(now: int) -> None:
        for key, count in self.store.all():
            self.out(key, count, now)

    self.every(call, PunctuationType.STREAM_TIME)


def _flush_rows(self: _Behaviour) -> None:
    def call(now: int) -> None:
        for key, row in list(self.store.all()):
            self.out(key, row, now)
            self.store.delete(key)

    self.every(call, PunctuationType.WALL_CLOCK_TIME)


_ON_INIT: dict[str, Callable[[_Behaviour], None]] = {
    "tick": _tick,
    "tick-at": lambda self: _tick(self, self.params.get("start", 0)),
    "tick-n": _tick_n,
    "n-ticks": _n_ticks,
    "meta-tick": _meta_tick,
    "count-then-punctuate-stream-time": _emit_counts,
    "wall-clock-flush": _flush_rows,
}


def _forward(self: _Behaviour, record: Record) -> None:
    self.context.forward(record)


def _dedup(self: _Behaviour, record: Record) -> None:
    if self.store.get(record.key) != record.value:
        self.store.put(record.key, record.value)
        self.context.forward(record)


def _count(self: _Behaviour, record: Record) -> None:
    old = self.store.get(record.key)
    self.store.put(record.key, (0 if old is None else num(old)) + 1)


def _append(self: _Behaviour, record: Record) -> None:
    old = self.store.get(record.key)
    self.store.put(record.key, text(record.value) if old is None else f"{text(old)}|{text(record.value)}")


def _put(self: _Behaviour, record: Record) -> None:
    self.store.put(record.key, record.value)


def _put_forward(self: _Behaviour, record: Record) -> None:
    self.store.put(record.key, record.value)
    self.context.forward(record)


def _lookup(self: _Behaviour, record: Record) -> None:
    row = self.store.get(record.key)
    shown = f"{text(row[0])}@{row[1]}" if isinstance(row, tuple) else text(row)
    self.context.forward(record.with_value(f"{text(record.value)}/{shown}"))


def _route(self: _Behaviour, record: Record) -> None:
    even = PREDICATES["v_even"](record.key, record.value)
    self.context.forward(record, self.params["even" if even else "odd"])


def _retime(self: _Behaviour, record: Record) -> None:
    self.context.forward(record.with_timestamp(record.timestamp + self.params.get("delta", 0)))


def _fan(self: _Behaviour, record: Record) -> None:
    for index in range(self.params.get("n", 2)):
        copy = record.with_value(f"{text(record.value)}#{index}")
        self.context.forward(copy.with_timestamp(record.timestamp + index * self.params.get("step", 0)))


def _meta(self: _Behaviour, record: Record) -> None:
    context = self.context
    shown = f"{_where(self)} st={context.current_stream_time_ms()} wall={context.current_system_time_ms()}"
    context.forward(record.with_value(shown))


def _boom(self: _Behaviour, record: Record) -> None:
    if record.value == self.params.get("on"):
        raise RuntimeError("boom")
    self.context.forward(record)


def _header(self: _Behaviour) -> tuple[str, bytes]:
    return self.params.get("key", "h"), str(self.params.get("value", "1")).encode()


def _set_header(self: _Behaviour, record: Record) -> None:
    self.context.forward(record.with_headers([*record.headers, _header(self)]))


def _set_header_in_place(self: _Behaviour, record: Record) -> None:
    record.headers.append(_header(self))
    self.context.forward(record)


def _drop_headers(self: _Behaviour, record: Record) -> None:
    self.context.forward(record.with_headers([]))


def _new_record(self: _Behaviour, record: Record) -> None:
    self.out(record.key, record.value, record.timestamp)


def _window_count(self: _Behaviour, record: Record) -> None:
    start = record.timestamp - record.timestamp % self.params.get("size", 10)
    old = self.store.fetch(record.key, start)
    count = (0 if old is None else num(old)) + 1
    self.store.put(record.key, count, start)
    self.context.forward(record.with_value(f"{start}={count}"))


def _arg(part: str) -> str | None:
    return None if part == "~" else part


def _rows(rows: Iterable[tuple[object, object]]) -> str:
    return "".join(f"{text(key) if not isinstance(key, Windowed) else key}={text(value)};" for key, value in rows)


def _answer(self: _Behaviour, record: Record, shown: str) -> None:
    self.context.forward(record.with_value(shown))


def _kv_ops(self: _Behaviour, record: Record) -> None:
    store, key, (op, *a) = self.store, record.key, text(record.value).split(":")
    if op == "put":
        store.put(key, _arg(a[0]))
    elif op == "putall":
        store.put_all([(a[i], _arg(a[i + 1])) for i in range(0, len(a) - 1, 2)])
    elif op == "pia":
        _answer(self, record, text(store.put_if_absent(key, _arg(a[0]))))
    elif op in ("del", "get"):
        _answer(self, record, text(store.delete(key) if op == "del" else store.get(key)))
    elif op in ("range", "rrange"):
        _answer(self, record, _rows((store.range if op == "range" else store.reverse_range)(_arg(a[0]), _arg(a[1]))))
    elif op in ("all", "rall"):
        _answer(self, record, _rows(store.all() if op == "all" else store.reverse_all()))
    elif op == "prefix":
        _answer(self, record, _rows(store.prefix_scan(a[0], str.encode)))
    else:
        raise KeyError(op)


def _window_ops(self: _Behaviour, record: Record) -> None:
    store, key, (op, *a) = self.store, record.key, text(record.value).split(":")
    if op == "put":
        store.put(key, _arg(a[0]), int(a[1]))
    elif op == "get":
        _answer(self, record, text(store.fetch(key, int(a[0]))))
    elif op in ("fetch", "bfetch"):
        _answer(self, record, _rows((store.fetch if op == "fetch" else store.backward_fetch)(key, int(a[0]), int(a[1]))))
    elif op in ("range", "brange"):
        scan = store.fetch_range if op == "range" else store.backward_fetch_range
        _answer(self, record, _rows(scan(_arg(a[0]), _arg(a[1]), int(a[2]), int(a[3]))))
    elif op == "fetchall":
        _answer(self, record, _rows(store.fetch_all(int(a[0]), int(a[1]))))
    elif op in ("all", "ball"):
        _answer(self, record, _rows(store.all() if op == "all" else store.backward_all()))
    else:
        raise KeyError(op)


def _session_ops(self: _Behaviour, record: Record) -> None:
    store, key, (op, *a) = self.store, record.key, text(record.value).split(":")
    if op == "put":
        store.put(Windowed(key, int(a[1]), int(a[2])), _arg(a[0]))
    elif op == "rm":
        store.remove(Windowed(key, int(a[0]), int(a[1])))
    elif op == "get":
        _answer(self, record, text(store.fetch_session(key, int(a[0]), int(a[1]))))
    elif op in ("find", "bfind"):
        _answer(self, record, _rows((store.find_sessions if op == "find" else store.backward_find_sessions)(key, int(a[0]), int(a[1]))))
    elif op in ("fetch", "bfetch"):
        _answer(self, record, _rows(store.fetch(key) if op == "fetch" else store.backward_fetch(key)))
    else:
        raise KeyError(op)


def _version(row: VersionedRecord | None) -> str:
    return "null" if row is None else f"{text(row.value)}@{row.timestamp}..{'now' if row.valid_to is None else row.valid_to}"


def _versioned_ops(self: _Behaviour, record: Record) -> None:
    store, key, (op, *a) = self.store, record.key, text(record.value).split(":")
    if op == "put":
        valid_to = store.put(key, _arg(a[0]), int(a[1]))
        _answer(self, record, f"validTo={_PUT_CURRENT if valid_to is None else valid_to}")
    elif op == "del":
        _answer(self, record, _version(store.delete(key, int(a[0]))))
    elif op in ("get", "asof"):
        _answer(self, record, _version(store.get(key) if op == "get" else store.get(key, int(a[0]))))
    else:
        raise KeyError(op)


_PUT_CURRENT = -1
"""The result of Kafka Streams' `put` when the version is the current one."""

_ON_RECORD: dict[str, Callable[[_Behaviour, Record], None]] = {
    **dict.fromkeys(("forward", "tick", "tick-at", "tick-n", "n-ticks", "meta-tick"), _forward),
    "drop": lambda self, record: None,
    "dedup": _dedup,
    "count-then-punctuate-stream-time": _count,
    "wall-clock-flush": _append,
    "put": _put,
    "put-forward": _put_forward,
    "lookup": _lookup,
    "route": _route,
    "retime": _retime,
    "fan": _fan,
    "meta": _meta,
    "boom": _boom,
    "set-header": _set_header,
    "set-header-in-place": _set_header_in_place,
    "drop-headers": _drop_headers,
    "new-record": _new_record,
    "window-count": _window_count,
    "kv-ops": _kv_ops,
    "window-ops": _window_ops,
    "session-ops": _session_ops,
    "versioned-ops": _versioned_ops,
}


class _FixedBehaviour(FixedKeyProcessor):
    def __init__(self, behaviour: str, params: dict[str, Any], stores: list[str]) -> None:
        self.params, self.stores = params, stores
        self._work = _FIXED[behaviour]

    def process(self, record: object) -> None:
        self._work(self, record)


def _suffix(self: _FixedBehaviour, record: Any) -> None:
    self.context.forward(record.with_value(text(record.value) + str(self.params.get("s", "!"))))


def _twice(self: _FixedBehaviour, record: Any) -> None:
    self.context.forward(record)
    self.context.forward(record.with_value(f"{text(record.value)}'"))


def _drop_odd(self: _FixedBehaviour, record: Any) -> None:
    if PREDICATES["v_even"](record.key, record.value):
        self.context.forward(record)


def _running_count(self: _FixedBehaviour, record: Any) -> None:
    store = self.context.get_state_store(self.stores[0])
    old = store.get(record.key)
    count = (0 if old is None else num(old)) + 1
    store.put(record.key, count)
    self.context.forward(record.with_value(f"{text(record.value)}#{count}"))


_FIXED: dict[str, Callable[[_FixedBehaviour, Any], None]] = {
    "suffix": _suffix,
    "twice": _twice,
    "drop-odd": _drop_odd,
    "running-count": _running_count,
}
