"""The plan of an edit of a topology: which nodes are unchanged, changed in code only, new or removed; which stores are kept,
migrated, rebuilt, reset, removed or refused.

Pure data, computed from two topologies before anything is changed; the user sees it and the edit follows it. Nodes and stores are
identified by name; a new store may find rows that an earlier version left under its name. The code of a node is compared by what
its functions do (byte code, constants, names, closure values), not by identity, so that running an unchanged cell again changes
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from kstreams_repl.engine.topology.differences.node_diff import NodeChange, NodeDiff, node_diff, serde_name
from kstreams_repl.engine.topology.differences.schema_diff import SchemaDiff
from kstreams_repl.engine.topology.graph import TopologyGraph
from kstreams_repl.engine.topology.nodes import ProcessorNode
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind


class StoreChange(StrEnum):
    KEPT = "kept"
    MIGRATED = "migrated"  # other settings (caching, retention, changelog), or each row goes through the edit's function
    REBUILT = "rebuilt"  # filled again from its source topic
    RESET = "reset"  # emptied, because the edit requests it
    NEW = "new"
    REMOVED = "removed"
    REFUSED = "refused"  # the new topology would misread its rows


@dataclass(frozen=True, slots=True)
class StoreDiff:
    """One store's part of the plan.

    Attributes:
        hint: how to proceed, for a refused store.
        rewritten: whether each of its rows goes through a function of the edit.
    """

    name: str
    change: StoreChange
    reason: str = ""
    hint: str = ""
    rewritten: bool = False


@dataclass(frozen=True, slots=True)
class TopologyDiff:
    """The plan of an edit.

    Attributes:
        topics_added, topics_removed: source and internal topics (logical names) that only the new, or only the old, topology
            reads.
        subtopologies_changed: whether nodes or stores moved between sub-topologies, which changes the meaning of task ids and
            changelog partitions.
        schemas: schemas that were compared: those that differ from the ones before, and those of new topics and stores.
    """

    nodes: tuple[NodeDiff, ...]
    stores: tuple[StoreDiff, ...]
    topics_added: tuple[str, ...] = ()
    topics_removed: tuple[str, ...] = ()
    subtopologies_changed: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    schemas: tuple[SchemaDiff, ...] = ()

    @property
    def reset(self) -> tuple[str, ...]:
        """Return the stores that the edit empties."""
        return tuple(store.name for store in self.stores if store.change is StoreChange.RESET)

    @property
    def rewritten(self) -> tuple[str, ...]:
        """Return the stores whose rows go through a function of the edit."""
        return tuple(store.name for store in self.stores if store.rewritten)

    @property
    def empty(self) -> bool:
        """Return whether nothing changes."""
        return all(node.change is NodeChange.UNCHANGED for node in self.nodes) and all(
            store.change is StoreChange.KEPT for store in self.stores
        )

    @property
    def code_only(self) -> bool:
        """Return whether only functions change: state and offsets stay."""
        kept = {NodeChange.UNCHANGED, NodeChange.CODE}
        return all(node.change in kept for node in self.nodes) and all(store.change is StoreChange.KEPT for store in self.stores)

    @property
    def refused(self) -> tuple[StoreDiff, ...]:
        """Return the stores that prevent the edit; empty if it can be applied."""
        return tuple(store for store in self.stores if store.change is StoreChange.REFUSED)

    @property
    def refused_schemas(self) -> tuple[SchemaDiff, ...]:
        """Return the schemas of topics that prevent the edit; those of stores are in `refused`."""
        return tuple(schema for schema in self.schemas if schema.stops and schema.role != "store")

    def __str__(self) -> str:
        lines = [f"{node.change:>10}  node   {node.name}" + (f"  ({node.reason})" if node.reason else "") for node in self.nodes]
        for store in self.stores:
            lines.append(f"{store.change:>10}  store  {store.name}" + (f"  ({store.reason})" if store.reason else ""))
            if store.hint:
                lines.append(f"{'':>10}         Hint: {store.hint}")
        lines += [f"{'reads':>10}  topic  {topic}" for topic in self.topics_added]
        lines += [f"{'leaves':>10}  topic  {topic}" for topic in self.topics_removed]
        lines += [f"{'':>10}  {schema}" for schema in self.schemas]
        return "\n".join(lines)


def diff(
    old: TopologyGraph,
    new: TopologyGraph,
    *,
    reset: Collection[str] = (),
    migrate: Collection[str] = (),
    migrate_rows: Collection[str] = (),
    left: Callable[[str], TopologyGraph | None] = lambda store: None,
    ran: Mapping[str, object] | None = None,
    schemas: Collection[SchemaDiff] = (),
) -> TopologyDiff:
    """Return the plan that leads from one topology to another.

    Args:
        reset: stores to empty.
        migrate: stores whose values go through a function.
        migrate_rows: stores whose keys and values go through a function.
        left: returns the topology that last wrote the rows that still exist under the name of a store which `old` does not have.
        ran: `whole_code` of `old` when it began to run.
        schemas: what was found of the schemas of `new`.
    """
    owned: dict[tuple[bool, str], list[SchemaDiff]] = {}
    for schema in schemas:
        owned.setdefault((schema.role == "store", schema.owner), []).append(schema)
    names = dict.fromkeys((*new.nodes, *old.nodes))
    nodes = tuple(
        node_diff(old.nodes.get(name), new.nodes.get(name), (ran or {}).get(name), owned.get((False, name), ())) for name in names
    )
    old_stores, new_stores = all_stores(old), all_stores(new)
    old_homes, new_homes = _homes(old), _homes(new)
    moved = {name: (home, new_homes[name]) for name, home in old_homes.items() if name in new_homes and new_homes[name] != home}
    stores = tuple(
        _converted_store(name, old_stores.get(name), new_stores.get(name), old, new, owned.get((True, name), ()), keys=name in migrate_rows)
        if name in migrate or name in migrate_rows
        else _planned_store(name, old_stores, new_stores, old, new, owned.get((True, name), ()), name in reset, left)
        for name in dict.fromkeys((*new_stores, *old_stores))
    )
    before, after = old.source_topics(), new.source_topics()
    return TopologyDiff(
        nodes,
        stores,
        tuple(topic for topic in after if topic not in before),
        tuple(topic for topic in before if topic not in after),
        moved,
        tuple(schemas),
    )


def all_stores(topology: TopologyGraph) -> dict[str, StoreBuilder]:
    """Return all stores by name, global ones too."""
    return {store.name: store for part in topology.subtopologies() for store in part.stores} | dict(topology.stores)


def _homes(topology: TopologyGraph) -> dict[str, int]:
    return {store.name: part.id for part in topology.subtopologies() if not part.global_ for store in part.stores}


_RESET = "reset the store (reset_state=[{!r}]; its rows are deleted), or give it a new name"
_RENAME = "give it a new name"
_MIGRATE = "convert its values (migrate={{{!r}: function of key and value}})"
_MIGRATE_ROWS = "convert its rows (migrate_rows={{{!r}: function of key and value that gives both}})"
_BY_KEY = frozenset({StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED_KEY_VALUE})
_BY_WINDOW = frozenset({StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW, StoreKind.TIME_ORDERED_WINDOW, StoreKind.SESSION})
_NOT_CONVERTED = {
    StoreKind.VERSIONED: "a versioned store keeps a history of each key, and only the last value of one would be converted",
    StoreKind.LRU: "an LRU store drops its rows in the order of its changelog, and converted rows would be the newest of it",
}
"""Why rows of a kind cannot go through a function; rows of all other kinds are private to their operators."""


def _planned_store(
    name: str,
    old_stores: Mapping[str, StoreBuilder],
    new_stores: Mapping[str, StoreBuilder],
    old: TopologyGraph,
    new: TopologyGraph,
    schemas: Sequence[SchemaDiff],
    reset: bool,
    left: Callable[[str], TopologyGraph | None],
) -> StoreDiff:
    """Return the plan of a store, including rows left under its name and stores to be emptied."""
    before, after = old_stores.get(name), new_stores.get(name)
    earlier = left(name) if before is None and after is not None else None
    if earlier is not None:
        change = _store_diff(all_stores(earlier).get(name), after, earlier, new, schemas)
        if change.change is StoreChange.REFUSED:
            change = replace(change, reason=f"an earlier version left rows: {change.reason}")
        else:
            change = StoreDiff(name, StoreChange.NEW, "with the rows that an earlier version left")
        before = all_stores(earlier)[name]
    else:
        change = _store_diff(before, after, old, new, schemas)
    if after is None or before is None or not reset and change.change is not StoreChange.REFUSED:
        return change
    why = _why_not_emptied(before, after, old, new)
    if not reset:
        hint = _RENAME if why else _RESET.format(name)
        way = "" if earlier is not None else _conversion(name, before, after, old, new, schemas)
        return replace(change, hint=f"{way}, {hint}" if way else hint)
    if why:
        return StoreDiff(name, StoreChange.REFUSED, why, _RENAME)
    return StoreDiff(name, StoreChange.RESET, f"its rows are deleted{f': {change.reason}' if change.reason else ''}")


def _converted_store(
    name: str,
    before: StoreBuilder | None,
    after: StoreBuilder | None,
    old: TopologyGraph,
    new: TopologyGraph,
    schemas: Sequence[SchemaDiff],
    *,
    keys: bool,
) -> StoreDiff:
    """Return the plan of a store whose values, or keys and values, go through a function."""
    what = "migrate_rows" if keys else "migrate"
    if before is None or after is None:
        return StoreDiff(name, StoreChange.REFUSED, "it has no rows to migrate", f"leave it out of {what}")
    reason = _why_not_converted(before, after, old, new, schemas, keys=keys)
    if reason:
        way = _conversion(name, before, after, old, new, schemas)
        hint = _RENAME if _why_not_emptied(before, after, old, new) else _RESET.format(name)
        return StoreDiff(name, StoreChange.REFUSED, reason, f"{way}, {hint}" if way else hint)
    detail = f"each {'row' if keys else 'value'} goes through {what}{_other_serdes(before, after)}"
    return StoreDiff(name, StoreChange.MIGRATED, detail, rewritten=True)


def _conversion(
    name: str, before: StoreBuilder, after: StoreBuilder, old: TopologyGraph, new: TopologyGraph, schemas: Sequence[SchemaDiff]
) -> str:
    """Return the conversion that a store could go through, in words; "" if there is none."""
    if not _why_not_converted(before, after, old, new, schemas, keys=False):
        return _MIGRATE.format(name)
    return _MIGRATE_ROWS.format(name) if not _why_not_converted(before, after, old, new, schemas, keys=True) else ""


def _why_not_converted(
    before: StoreBuilder, after: StoreBuilder, old: TopologyGraph, new: TopologyGraph, schemas: Sequence[SchemaDiff], *, keys: bool
) -> str:
    """Return why values, or keys and values, cannot go through a function; "" if they can. Only these may change, nothing else of
    the store. Whether a row with a new key stays in its partition is checked after the function has run.
    """
    if before.kind not in _BY_KEY | _BY_WINDOW:
        return _NOT_CONVERTED.get(before.kind, f"the rows of a {before.kind} store are private to the operator that writes them")
    if before.retain_duplicates or after.retain_duplicates:
        return "a join keeps several values for one key and time in it, which are private to the join"
    if not (before.logging and after.logging) or before.source_topic is not None or after.source_topic is not None:
        return "only rows of a store with its own changelog are migrated, and it has none"
    if keys and before.kind in _BY_WINDOW:
        return f"the keys of a {before.kind} store carry its windows, so only its values are migrated"
    as_after = replace(before, value_serde=after.value_serde, key_serde=after.key_serde if keys else before.key_serde)
    otherwise = _store_diff(as_after, after, old, new, [one for one in schemas if one.part == "key" and not keys])
    if otherwise.change is StoreChange.REFUSED:
        return f"only {'keys and values' if keys else 'values'} are migrated, and {otherwise.reason}"
    return ""


def _other_serdes(before: StoreBuilder, after: StoreBuilder) -> str:
    changes = ""
    for what, old, new in (("key", before.key_serde, after.key_serde), ("value", before.value_serde, after.value_serde)):
        was, now = serde_name(old), serde_name(new)
        changes += "" if was == now else f", its {what} serde was {was}, is {now}"
    return changes


def _why_not_emptied(before: StoreBuilder, after: StoreBuilder, old: TopologyGraph, new: TopologyGraph) -> str:
    """Return why a store cannot be emptied; "" if it can. Emptying deletes its changelog, and every task with the store then
    restores all its stores from their changelogs: another store of the task without a changelog would be emptied too.
    """
    for store in (before, after):
        if store.source_topic is not None:
            return f"it is filled from topic {store.source_topic}: it has no rows of its own to reset"
        if not store.logging:
            return "it has no changelog, so it cannot be reset"
    for graph in (old, new):
        for part in graph.subtopologies():
            names = {store.name for store in part.stores}
            if part.global_ and after.name in names:
                return "it is global: it has no rows of its own to reset"
            unlogged = [s.name for s in part.stores if s.persistent is not False and not s.logging and s.source_topic is None]
            if after.name in names and unlogged:
                return f"store {unlogged[0]} of the same sub-topology has no changelog and would be emptied, too"
    return ""


def _store_diff(
    old: StoreBuilder | None,
    new: StoreBuilder | None,
    old_graph: TopologyGraph,
    new_graph: TopologyGraph,
    schemas: Sequence[SchemaDiff] = (),
) -> StoreDiff:
    if old is None:
        assert new is not None
        return StoreDiff(new.name, StoreChange.NEW)
    if new is None:
        return StoreDiff(old.name, StoreChange.REMOVED, "its changelog stays until cleanup")
    for what, before, after in (
        ("kind", old.kind, new.kind),
        ("key serde", serde_name(old.key_serde), serde_name(new.key_serde)),
        ("value serde", serde_name(old.value_serde), serde_name(new.value_serde)),
        ("window size", old.window_size_ms, new.window_size_ms),
    ):
        if before != after:
            return StoreDiff(new.name, StoreChange.REFUSED, f"its {what} was {before}, would be {after}")
    for schema in schemas:
        if schema.stops:
            return StoreDiff(new.name, StoreChange.REFUSED, f"the schema of its {schema.part}s {schema.reason}")
    writers = _writer_change(new.name, old_graph, new_graph)
    if writers:
        return StoreDiff(new.name, StoreChange.REFUSED, writers)
    if old.source_topic != new.source_topic:
        if new.source_topic is not None:
            return StoreDiff(new.name, StoreChange.REBUILT, f"is filled from topic {new.source_topic}")
        return StoreDiff(new.name, StoreChange.REBUILT, "gets a changelog of its own")
    if new.logging and not old.logging and old.persistent:
        return StoreDiff(new.name, StoreChange.REFUSED, "its rows are in no changelog, and the one it would get would lack them")
    if (old.retention_ms or 0) > (new.retention_ms or 0):
        return StoreDiff(
            new.name, StoreChange.MIGRATED, f"keeps {new.retention_ms} ms instead of {old.retention_ms} ms: older rows are deleted"
        )
    changed = [
        what
        for what, before, after in (
            ("retention", old.retention_ms, new.retention_ms),
            ("caching", old.caching, new.caching),
            ("logging", old.logging, new.logging),
            ("persistence", old.persistent, new.persistent),
            ("headers", old.headers, new.headers),
            ("largest size", old.max_entries, new.max_entries),
            ("changelog settings", old.topic_config, new.topic_config),
        )
        if before != after
    ]
    changed += [f"{schema.part} schema" for schema in schemas if schema.edited]
    if changed:
        return StoreDiff(new.name, StoreChange.MIGRATED, f"other {', '.join(changed)}; its rows are kept")
    return StoreDiff(new.name, StoreChange.KEPT)


_WINDOW_SETTINGS = ("size_ms", "advance_ms", "time_difference_ms", "gap_ms", "unlimited_start_ms")


def _writer_change(store: str, old: TopologyGraph, new: TopologyGraph) -> str:
    """Return a change of the operators that write a store which changes the meaning of its rows; "" if there is none."""
    before, after = _writers(store, old), _writers(store, new)
    for name in before.keys() & after.keys():
        for setting in _WINDOW_SETTINGS:
            was, now = getattr(before[name], setting, None), getattr(after[name], setting, None)
            if was != now:
                return f"the windows of {name} had {setting} = {was}, would have {now}"
    return ""


def _writers(store: str, topology: TopologyGraph) -> dict[str, object]:
    return {
        node.name: node.operator
        for node in topology.nodes.values()
        if isinstance(node, ProcessorNode) and getattr(node.operator, "store", None) == store
    }
