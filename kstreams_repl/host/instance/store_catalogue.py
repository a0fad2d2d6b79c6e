"""The catalogue of an application's stores: a file next to its state, from which other processes know its stores without its topology.

The driver writes it with each start into the control directory, and so does the query server of each executor. It names serdes, and has
none of their code: a store whose serde has no name (`serdes.of`) is read as bytes, with a note. For reading stores a catalogue stands in
for a `Topology`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kstreams_repl.engine import serdes
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.serdes.serde import Serde
from kstreams_repl.engine.topology.names import internal_topic
from kstreams_repl.engine.topology.store_builder import StoreBuilder
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.instance.control.control_files import read_whole, write_whole
from kstreams_repl.host.instance.state.state_directory import control_directory
from kstreams_repl.system.errors import ConfigError, KStreamsError, StreamsNotStartedError
from kstreams_repl.system.types import JsonMapping, JsonObject

FILE = "stores.json"
NOTE = "note"
"""The option of a store's description that says what the catalogue lacks."""
_PLAIN = (
    "name", "kind", "caching", "logging", "persistent", "retention_ms", "window_size_ms", "retain_duplicates", "max_entries",
    "source_topic", "follows_default", "headers",
)  # fmt: skip
_SETTINGS = ("default.dsl.store", "dsl.store.format")
"""The settings that descriptions of stores depend on; an earlier version wrote the first one only."""


@dataclass(frozen=True, slots=True)
class SubtopologyStores:
    """The stores of one sub-topology. `source_topics` are real names."""

    id: int
    stores: tuple[StoreBuilder, ...]
    global_: bool = False
    source_topics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StoreCatalogue:
    """The stores of an application, as far as reading them needs it."""

    parts: tuple[SubtopologyStores, ...] = ()
    internal_topics: frozenset[str] = frozenset()
    """Empty: `StorePart.source_topics` are real names already."""

    def subtopologies(self) -> tuple[SubtopologyStores, ...]:
        """Return the parts, as `Topology.subtopologies`."""
        return self.parts

    @property
    def stores(self) -> Mapping[str, StoreBuilder]:
        """The stores of tasks by name, as `Topology.stores`."""
        return {builder.name: builder for part in self.parts if not part.global_ for builder in part.stores}

    def global_stores(self) -> SubtopologyStores | None:
        """Return the part of global stores, as `Topology.global_stores`."""
        return next((part for part in self.parts if part.global_), None)


def catalogue_path(root: Path, application_id: str) -> Path:
    """Return where the catalogue of an application is."""
    return control_directory(root, application_id) / FILE


def write_catalogue(root: Path, application_id: str, topology: Topology | StoreCatalogue, config: StreamsConfig) -> None:
    """Write the catalogue of a topology's stores."""
    internal = topology.internal_topics
    content = {
        **{name: config[name] for name in _SETTINGS},
        "parts": [
            {
                "id": part.id,
                "global": part.global_,
                "topics": [internal_topic(application_id, name) if name in internal else name for name in part.source_topics],
                "stores": [_plain(builder, config) for builder in part.stores],
            }
            for part in topology.subtopologies()
        ],
    }  # fmt: skip
    path = catalogue_path(root, application_id)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_whole(path, content)


def read_catalogue(root: Path, application_id: str) -> tuple[StoreCatalogue, JsonObject]:
    """Return the catalogue of an application on this host, and the settings that its stores depend on.

    Raises:
        StreamsNotStartedError: there is none.
        ConfigError: it cannot be read.
    """
    path = catalogue_path(root, application_id)
    content = read_whole(path)
    if content is None:
        raise StreamsNotStartedError(
            f"application {application_id!r} has no catalogue of stores in {path.parent}: it was never started here",
            hint="start it once with this version, or give its topology",
            path=str(path),
        )
    try:
        parts = tuple(
            SubtopologyStores(int(part["id"]), tuple(map(_builder, part["stores"])), bool(part["global"]), tuple(map(str, part["topics"])))
            for part in content["parts"]
        )
        return StoreCatalogue(parts), {name: content[name] for name in _SETTINGS if name in content}
    except (KeyError, TypeError, ValueError, KStreamsError) as error:
        raise ConfigError(f"the catalogue of stores in {path} cannot be read: {error}", hint="start the application again") from error


def _plain(builder: StoreBuilder, config: StreamsConfig) -> JsonObject:
    simple = {name: value for name, value in builder.options.items() if isinstance(value, str | int | float | bool)}
    names = {
        which: _name_of(serdes.resolve(own, config[f"default.{which}.serde"]))
        for which, own in (("key", builder.key_serde), ("value", builder.value_serde))
    }
    return {**{name: getattr(builder, name) for name in _PLAIN}, **names, "options": simple}


def _name_of(serde: Serde) -> str | None:
    """Return the name of a serde from which `serdes.of` makes it again; None if it has none."""
    if getattr(serde, "_builtin", False):
        return str(serde.name)
    recipe = getattr(serde, "_recipe", None)
    if recipe is not None and recipe[0] is serdes.list_of:
        inner = _name_of(serdes.resolve(recipe[1][0]))
        return None if inner is None else f"list({inner})"
    return None


def _builder(plain: JsonMapping) -> StoreBuilder:
    lacking = [which for which in ("key", "value") if plain[which] is None]
    options = dict(plain["options"])
    if lacking:
        options[NOTE] = f"the serde of the {' and the '.join(lacking)} has no name that can be looked up: bytes"
    return StoreBuilder(
        **{name: plain[name] for name in _PLAIN if name in plain},
        key_serde=serdes.of(plain["key"] or "bytes"),
        value_serde=serdes.of(plain["value"] or "bytes"),
        options=options,
    )
