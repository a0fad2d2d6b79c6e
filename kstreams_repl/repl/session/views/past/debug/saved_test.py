"""The text of a test that `Debugger.save_test` writes: one record, the rows it read, and what should come out."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kstreams_repl.engine import serdes
from kstreams_repl.engine.commit.offset_metadata import COMMIT_ID, STREAM_TIME
from kstreams_repl.engine.runtime.task import TaskSpec
from kstreams_repl.engine.topology.names import internal_topic
from kstreams_repl.engine.topology.nodes import SinkNode
from kstreams_repl.pictures.markup import one_line
from kstreams_repl.repl.session.views.past.replay.record_trace import RecordTrace
from kstreams_repl.repl.session.views.past.replay.replica import NotedReads, Starts
from kstreams_repl.system.errors import CallError, did_you_mean
from kstreams_repl.system.types import RecordBatch

Expected = Sequence[tuple[Any, Any]] | Mapping[Any, Any]
"""Of an output topic: (key, value) of each record; of a store: its value by key (None: no row)."""

_SETTINGS = (
    "application.id", "default.", "dsl.", "statestore.", "repl.emit.", "repl.changelog.", "deserialization.",
)  # fmt: skip
"""Beginnings of the settings on which the results of a task depend."""

_TEST = '''"""What {position} of {application} should do.

{why}
The rows in SAVED_STATE are those that it read, as they were just before it in task {task}.
"""

{future}from kstreams_repl.testing import SavedState, TopologyTestDriver

{source}

SAVED_CONFIG = {config}
SAVED_STATE = SavedState(
{state}
)


def test_{name}():
    with TopologyTestDriver({topology}, SAVED_CONFIG, mode="deployed", start_ms={now}, state=SAVED_STATE) as driver:
{shown}        driver.pipe_bytes({topic!r}, {key!r}, {value!r}, {timestamp}, {headers!r})
{checks}
'''


def test_text(
    spec: TaskSpec,
    trace: RecordTrace,
    record: RecordBatch,
    before: Starts,
    noted: NotedReads,
    *,
    expect: Mapping[str, Expected] | None,
    program: str | None,
    topology: str | None,
) -> str:
    """Return the test of one record.

    Args:
        trace: what the record did, with the application's own functions.
        record: as it is on its topic, alone.
        before: offsets, times and metadata as of the commit just before it.
        noted: what it read.
    """
    [key], [value], [timestamp] = record.keys, record.values, record.timestamps
    now = max(timestamp, *(start.metadata.stream_time for start in before.values()))
    future, source, name = _source(program, topology)
    error = trace.raised
    came = next((visit.input for visit in trace.visits if visit.input is not None), None)
    why = "It fails until the topology is mended."
    if error is not None:
        why = one_line(f"It failed with {type(error).__name__}: {error}", limit=120).translate({ord('"'): "'", ord("\\"): "/"})
    elif expect is None:
        why = "It fails until it says what should come out."
    return _TEST.format(
        position=trace.position, application=spec.application_id, why=why, task=spec.task_id,
        future=future, source=source, topology=name, now=now,
        config=_laid_out(_settings(spec), ""),
        state=_state_text(before, noted),
        name="".join(letter if letter.isalnum() else "_" for letter in str(trace.position)),
        topic=trace.position.topic, key=key, value=value, timestamp=timestamp, headers=(record.headers or [None])[0] or [],
        shown="" if came is None else f"        # {one_line(f'{came.key!r}: {came.value!r}', limit=120)}\n",
        checks=_checks(spec, trace, expect, failed=error is not None),
    )  # fmt: skip


test_text.__test__ = False  # type: ignore[attr-defined]


def _source(program: str | None, topology: str | None) -> tuple[str, str, str]:
    """Return the line for the future, the text that makes the topology, and the expression that is it."""
    if topology is not None:
        module, _, name = topology.partition(":")
        if not module or not name.isidentifier():
            raise CallError(f"expected 'module:name', got {topology!r}", hint='save_test(path, topology="app:topology")')
        text = f"import {module} as saved_module\n\nsaved_topology = saved_module.{name}"
        return "", text, "saved_topology() if callable(saved_topology) else saved_topology"
    text = program or ""
    first, _, rest = text.partition("\n")
    future, text = (f"{first}\n\n", rest) if first.startswith("from __future__") else ("", text)
    return future, text.strip(), "__topology__"


def _settings(spec: TaskSpec) -> dict[str, object]:
    found: dict[str, object] = {"application.id": spec.application_id}
    for name in sorted(spec.config.given):
        value = spec.config[name] if name in spec.config else None
        if isinstance(value, serdes.Serde):
            value = _name_of(value)
        if name.startswith(_SETTINGS) and isinstance(value, str | int | float | bool):
            found[name] = value
    return {"application.id": spec.application_id} | found


def _state_text(before: Starts, noted: NotedReads) -> str:
    metadata: dict[str, int] = {}
    for start in before.values():
        for name, number in start.metadata.entries.items():
            if name not in (COMMIT_ID, STREAM_TIME):
                metadata[name] = max(number, metadata.get(name, number))
    parts: dict[str, object] = {
        "rows": {name: rows for name, rows in noted.rows.items() if rows},
        "attributes": noted.attributes,
        "offsets": {partition.topic: start.offset for partition, start in before.items()},
        "times": {partition.topic: start.metadata.partition_time for partition, start in before.items()},
        "stream_time": max((start.metadata.stream_time for start in before.values()), default=-1),
        "metadata": metadata,
    }
    return "\n".join(f"    {name}={_laid_out(value, '    ')}," for name, value in parts.items())


def _laid_out(value: object, indent: str) -> str:
    """Return a literal with one entry of a dict on each line."""
    if not isinstance(value, dict) or not value:
        return repr(value)
    entries = "".join(f"{indent}    {name!r}: {_laid_out(item, indent + '    ')},\n" for name, item in value.items())
    return f"{{\n{entries}{indent}}}"


def _checks(spec: TaskSpec, trace: RecordTrace, expect: Mapping[str, Expected] | None, *, failed: bool) -> str:
    """Return the statements that compare what came out."""
    sinks = {_topic(spec, node): node for node in spec.subtopology.nodes if isinstance(node, SinkNode) and node.topic is not None}
    stores = [builder.name for builder in spec.subtopology.stores]
    lines: list[str] = []
    if expect is None and not failed:
        found: dict[str, list[tuple[Any, Any]]] = {topic: [] for topic in sinks}
        for sent in trace.sent:
            if sent.topic in sinks:
                found[sent.topic].append((sent.key, sent.value))
        for topic, came in found.items():
            key_serde, value_serde = _serdes(spec, sinks[topic])
            shown = [(_read(key_serde, key), _read(value_serde, value)) for key, value in came]
            lines.append(f"        # TODO: what should come out? It was {_literal(shown, topic)}")
            lines.append(f"        assert {_reading(topic, key_serde, value_serde)} == ...")
        return "\n".join(lines) or "        assert False, 'complete what should be in the stores'"
    for name, rows in (expect or {}).items():
        if name in sinks:
            lines.append(f"        assert {_reading(name, *_serdes(spec, sinks[name]))} == {_literal(list(rows), name)}")
        elif name in stores and isinstance(rows, Mapping):
            for key, value in rows.items():
                lines.append(f"        row = driver.state_store({name!r}).get({_literal(key, name)})")
                lines.append(f"        assert getattr(row, 'value', row) == {_literal(value, name)}")
        else:
            known: Iterable[str] = [*sinks, *stores]
            raise CallError(
                f"expect names {name!r}, which is neither an output topic nor a store (with its value by key) of the task",
                hint=did_you_mean(name, known) or f"it has {', '.join(known)}",
            )
    return "\n".join(lines)


def _topic(spec: TaskSpec, node: SinkNode) -> str:
    topic = node.topic or ""
    return internal_topic(spec.application_id, topic) if topic in spec.internal_topics else topic


def _serdes(spec: TaskSpec, node: SinkNode) -> tuple[str | None, str | None]:
    """Return the names of a sink's serdes; None for one without, whose bytes are compared."""
    return (
        _name_of(node.key_serde or spec.config["default.key.serde"]),
        _name_of(node.value_serde or spec.config["default.value.serde"]),
    )


def _name_of(serde: object) -> str | None:
    name = serde if isinstance(serde, str) else getattr(serde, "name", None)
    try:
        return name if name is not None and (name is serde or serdes.of(name) is serde) else None
    except Exception:  # not the name of a serde
        return None


def _reading(topic: str, key_serde: str | None, value_serde: str | None) -> str:
    return f"driver.create_output_topic({topic!r}, {key_serde!r}, {value_serde!r}).read_key_values()"


def _read(serde: str | None, data: bytes | None) -> Any:
    return data if serde is None or data is None else serdes.of(serde).deserialize(data)


def _literal(value: object, name: str) -> str:
    """Return the literal of a value."""
    text = repr(value)
    try:
        if ast.literal_eval(text) == value:
            return text
    except (ValueError, SyntaxError):
        pass
    raise CallError(f"the value {text[:60]} for {name!r} has no literal", hint="give plain values: text, numbers, bytes, lists, dicts")
