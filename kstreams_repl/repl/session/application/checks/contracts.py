"""Compare the schemas of a topology with those in the Schema Registry, and with those of the topology that ran before.

A schema that is written (a sink, a repartition topic, a changelog) has to fit the versions of its subject, by the registry's own rule. One
that rows of a store, or records on their way through a repartition topic, are read with has to read the schema before it. A source has to
read the newest version of its topic's subject. Nothing is registered by asking.

Only a store's rows can be converted (`migrate=`). Afterwards no row has an earlier schema, so its subject begins with the new one
(`begin_versions`); the same holds for a store that is reset, and for a topic that does not exist yet.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.serdes import resolve
from kstreams_repl.engine.serdes.deferred import DeferredSerde
from kstreams_repl.engine.serdes.schemas.contracts import NOT_IMPLEMENTED, Declared, RegistryQuestions, SubjectFit, declared_by
from kstreams_repl.engine.serdes.schemas.schema_registry import Part, settings_from
from kstreams_repl.engine.topology.differences.diff import all_stores
from kstreams_repl.engine.topology.differences.schema_diff import Role, SchemaChange, SchemaDiff
from kstreams_repl.engine.topology.graph import TopologyGraph
from kstreams_repl.engine.topology.names import changelog_topic, internal_topic
from kstreams_repl.engine.topology.nodes import SinkNode, SourceNode
from kstreams_repl.system.errors import (
    IncompatibleSchemaError,
    SchemaRegistryError,
    SchemaRegistryUnavailableError,
    SerializationError,
)

SETTING = "repl.schema.check"
_FORBIDDEN = 403
_BARE = "changes, and bare Avro does not say which schema wrote a value"


@dataclass(frozen=True, slots=True)
class _Use:
    """The schemas of the keys or values of one topic, where a topology reads or writes them."""

    role: Role
    owner: str
    topic: str
    part: Part
    internal: bool
    schemas: tuple[Declared, ...]

    @property
    def holds_rows(self) -> bool:
        """Return whether what it has written is read again by itself: a store, a repartition topic."""
        return self.role == "store" or self.internal

    def earlier(self, before: _Use | None, index: int) -> Declared | None:
        """Return the schema that stood in the place of one of these."""
        if before is None or len(before.schemas) != len(self.schemas):
            return None
        was, now = before.schemas[index], self.schemas[index]
        same_kind = (was.format is None) == (now.format is None) and getattr(was.format, "name", "") == getattr(now.format, "name", "")
        return was if same_kind and was.text and now.text else None


def compare_schemas(
    name: str,
    topology: TopologyGraph,
    config: StreamsConfig,
    *,
    before: TopologyGraph | None = None,
    ran: StreamsConfig | None = None,
    topics: Callable[[], Collection[str]] | None = None,
    sources: bool = True,
    ask: bool = True,
) -> tuple[SchemaDiff, ...]:
    """Return what is to be result about the schemas of a topology: those that are new or differ from the ones before, and those it reads.

    Args:
        before: the topology that ran last under the name; None: there was none.
        ran: its settings; None: the present ones.
        topics: returns the topics of the cluster; an internal one that is missing has no rows. None: all may have.
        sources: also ask about sources that have not changed.
        ask: False: compare with `before` only; the registry is not asked.

    Raises:
        SchemaRegistryError: the registry refuses the credentials or a schema.
        ConfigError: a serde needs a registry, and none is set.
    """
    ask = ask and bool(config[SETTING])
    mine = _uses(topology, name, config)
    theirs = {} if before is None else _uses(before, name, ran or config)
    results = []
    with ExitStack() as open_clients:
        asked = _Asked(open_clients)
        for key, use in mine.items():
            for index, schema in enumerate(use.schemas):
                was = use.earlier(theirs.get(key), index)
                edited = key in theirs and (was is None or not schema.is_like(was))
                if not schema.text or (key in theirs and not edited and (use.role != "source" or not sources)):
                    continue
                rows = topics is None or not use.holds_rows or use.topic in topics()
                result = _compared(asked if ask else None, use, schema, was if edited else None, rows)
                if result is not None:
                    results.append(replace(result, edited=edited))
    return tuple(results)


def begin_versions(name: str, topology: TopologyGraph, config: StreamsConfig, schemas: Collection[SchemaDiff]) -> None:
    """Let subjects begin with schemas that fit no version before them, and need not: there are no rows of those, or there will be none.

    Raises:
        SchemaRegistryError: the registry does not answer, or the user may not delete a subject; the application was not changed.
    """
    changed = {(schema.role, schema.owner, schema.part, schema.topic) for schema in schemas if schema.subject}
    with ExitStack() as open_clients:
        asked = _Asked(open_clients)
        for key, use in _uses(topology, name, config).items():
            for schema in use.schemas if key in changed else ():
                if schema.format is not None and schema.text:
                    asked.of(schema).begin(schema)


def refuse_schemas(schemas: Collection[SchemaDiff], application: str, plan: str) -> None:
    """Raise for the first schema of a topic that does not fit, and for a changed one of which the registry says nothing.

    Raises:
        IncompatibleSchemaError: names topic, subject and field.
        SchemaRegistryUnavailableError: a changed schema could not be compared.
    """
    for schema in schemas:
        fields = {"topic": schema.topic, "part": schema.part, "subject": schema.subject, "application": application, "plan": plan}
        fields["store" if schema.role == "store" else "node"] = schema.owner
        if schema.stops:
            raise IncompatibleSchemaError(
                f"the {schema.part} schema of {schema.role} {schema.owner!r} (topic {schema.topic}) {schema.reason}",
                hint=f"{schema.hint}; {SETTING}=False leaves it to the registry" if schema.hint else None,
                **fields,
            )
        if schema.edited and schema.change is SchemaChange.NO_ANSWER:
            raise SchemaRegistryUnavailableError(
                f"the changed {schema.part} schema of {schema.role} {schema.owner!r} was not compared: {schema.reason}",
                hint=f"try again when the registry answers; {SETTING}=False does not ask it",
                **fields,
            )


class _Asked:
    """The registries of one comparison. One that does not answer is not asked again."""

    def __init__(self, open_clients: ExitStack) -> None:
        self._open = open_clients
        self._clients: dict[object, RegistryQuestions] = {}
        self.failed: dict[object, str] = {}

    def of(self, schema: Declared) -> RegistryQuestions:
        questions = self._clients.get(schema.registry)
        if questions is None:
            questions = self._clients[schema.registry] = self._open.enter_context(RegistryQuestions(schema.registry))
        return questions


def _uses(topology: TopologyGraph, name: str, config: StreamsConfig) -> dict[tuple[Role, str, Part, str], _Use]:
    uses = {}
    for use in _serdes_of(topology, name, config):
        if use.schemas:
            uses[use.role, use.owner, use.part, use.topic] = use
    return uses


def _serdes_of(topology: TopologyGraph, name: str, config: StreamsConfig) -> Iterator[_Use]:
    registry = settings_from(config.client)
    internal = topology.internal_topics
    parts: tuple[Part, Part] = ("key", "value")
    defaults = {part: resolve(config[f"default.{part}.serde"]) for part in parts}

    def use(role: Role, owner: str, topic: str, part: Part, serde: object) -> _Use:
        bound = serde.bind(defaults["key"], defaults["value"]) if isinstance(serde, DeferredSerde) else resolve(serde, defaults[part])
        real = internal_topic(name, topic) if topic in internal else topic
        return _Use(role, owner, real, part, topic in internal, declared_by(bound.for_topic(real, part, registry)))

    for node in topology.nodes.values():
        if isinstance(node, SourceNode):
            for topic in node.topics:
                if topic not in internal:  # its sink stands for it
                    yield use("source", node.name, topic, "key", node.key_serde)
                    yield use("source", node.name, topic, "value", node.value_serde)
        elif isinstance(node, SinkNode) and node.topic is not None:
            yield use("sink", node.name, node.topic, "key", node.key_serde)
            yield use("sink", node.name, node.topic, "value", node.value_serde)
    for store in all_stores(topology).values():
        if store.source_topic is None:  # else its rows are those of the source
            changelog = changelog_topic(name, store.name)
            yield use("store", store.name, changelog, "key", store.key_serde)
            yield use("store", store.name, changelog, "value", store.value_serde)


def _compared(asked: _Asked | None, use: _Use, schema: Declared, was: Declared | None, rows: bool) -> SchemaDiff | None:
    """Return what is to be result about one schema; None: nothing."""
    result = SchemaDiff(use.role, use.owner, use.topic, use.part, SchemaChange.NOT_COMPARED)
    if schema.format is None:
        return None if was is None else _refused(result, use, _BARE) if rows and use.holds_rows else replace(result, reason=_BARE)
    if asked is None:
        return None if was is None else replace(result, reason="the registry was not asked")
    if schema.registry in asked.failed:
        return replace(result, change=SchemaChange.NO_ANSWER, reason=asked.failed[schema.registry])
    questions = asked.of(schema)
    try:
        return _read(questions, schema, result) if use.role == "source" else _written(questions, use, schema, was, rows, result)
    except SchemaRegistryUnavailableError as error:
        asked.failed[schema.registry] = error.message
        return replace(result, change=SchemaChange.NO_ANSWER, reason=error.message)
    except SchemaRegistryError as error:
        if getattr(error, "status", None) not in (_FORBIDDEN, NOT_IMPLEMENTED):
            raise
        return replace(result, reason=error.message)
    except SerializationError:  # a schema that it refers to is not registered yet: the first value registers it
        return None


def _read(questions: RegistryQuestions, schema: Declared, result: SchemaDiff) -> SchemaDiff:
    reason = questions.unreadable(schema)
    if not reason:
        return replace(result, change=SchemaChange.COMPATIBLE)
    return replace(
        result,
        change=SchemaChange.REFUSED,
        reason=f"does not read the newest: {reason}",
        hint="give the source a schema that reads it, or serdes.registry, which reads all versions",
    )


def _written(
    questions: RegistryQuestions, use: _Use, schema: Declared, was: Declared | None, rows: bool, result: SchemaDiff
) -> SchemaDiff | None:
    assert schema.format is not None
    if schema.format.options.use_latest:
        return None
    answer = questions.may_write(schema)
    result = replace(result, reason="first version") if answer is None else replace(result, subject=answer.subject, reason=_rule(answer))
    if not schema.format.options.auto_register and (answer is None or not answer.registered):
        hint = "register it, or leave auto_register=False out"
        return replace(result, change=SchemaChange.REFUSED, reason="is not registered, and auto_register is off", hint=hint)
    if answer is not None and not answer.accepted:
        if rows:
            return _refused(result, use, _rule(answer))
        return replace(result, change=SchemaChange.COMPATIBLE, begins=True, reason="begins: there are no rows of earlier versions")
    if was is not None and rows and use.holds_rows:
        reason = questions.unreadable(schema, was)
        if not reason and answer is not None and answer.reads_earlier and not answer.compatible:
            reason = answer.reason
        if reason:
            return _refused(result, use, f"cannot read what was written with the one before: {reason}")
    return replace(result, change=SchemaChange.COMPATIBLE)


def _rule(answer: SubjectFit) -> str:
    fits = "fits" if answer.compatible else "does not fit"
    return f"{fits} version {answer.version} of {answer.subject} ({answer.level})" + (f": {answer.reason}" if answer.reason else "")


def _refused(result: SchemaDiff, use: _Use, reason: str) -> SchemaDiff:
    if use.role == "store":
        return replace(result, change=SchemaChange.MIGRATE, reason=reason)
    if use.internal:
        hint = "records of the old schema may be on their way: give the repartition another name"
    else:
        hint = "change the schema so that it fits, write another topic, or change the compatibility of the subject in the registry"
    return replace(result, change=SchemaChange.REFUSED, reason=reason, hint=hint)
