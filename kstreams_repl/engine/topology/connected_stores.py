"""The stores that a processor supplier provides by its `stores()` (Kafka Streams' `ConnectedStoreProvider`)."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

from kstreams_repl.engine.topology.store_builder import StoreBuilder
from kstreams_repl.system.errors import TopologyError


def supplied_stores(supplier: object, node: str) -> tuple[StoreBuilder, ...]:
    """Return the store builders of a supplier; none if it has no `stores()`, or that returns None.

    Raises:
        TopologyError: `stores()` cannot be called, or returns something else.
    """
    stores = getattr(supplier, "stores", None)
    if not callable(stores):
        return ()
    try:
        inspect.signature(stores).bind()
    except ValueError:  # some built-in functions have no signature
        pass
    except TypeError as cause:
        raise TopologyError(
            f"stores() of the supplier of {node!r} cannot be called: {cause}",
            hint="a class that is its own supplier has it as a @staticmethod or @classmethod",
            node=node,
        ) from cause
    supplied = stores()
    if supplied is None:
        return ()
    builders = tuple(supplied) if isinstance(supplied, Iterable) else (supplied,)
    if not isinstance(supplied, Iterable) or not all(isinstance(builder, StoreBuilder) for builder in builders):
        raise TopologyError(
            f"expected store builders from stores() of the supplier of {node!r}, got {supplied!r}",
            hint='return a list of store builders: [StoreBuilder("name", StoreKind.KEY_VALUE)]',
            node=node,
        )
    return builders


def store_names(stores: Any, node: str) -> tuple[str, ...]:
    """Return the names in a processor's `stores=`: one name or several.

    Raises:
        TopologyError: an entry is not a store name.
    """
    names = () if stores is None else (stores,) if isinstance(stores, (str, StoreBuilder)) else tuple(stores)
    for name in names:
        if not isinstance(name, str):
            raise TopologyError(
                f"expected names of stores in stores= of {node!r}, got {name!r}",
                hint='add the store first, add_state_store(builder), and pass its name: stores=["name"]',
                node=node,
            )
    return names
