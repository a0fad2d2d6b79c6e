from typing import Any

from kstreams_repl import (
    kip28 as kip28,
)
from kstreams_repl import (
    queries as queries,
)
from kstreams_repl import (
    recipes as recipes,
)
from kstreams_repl import (
    reports as reports,
)
from kstreams_repl import (
    testing as testing,
)
from kstreams_repl import (
    types as types,
)
from kstreams_repl.engine import serdes as serdes
from kstreams_repl.engine.config import StreamsConfig as StreamsConfig
from kstreams_repl.engine.dsl import (
    Branched as Branched,
)
from kstreams_repl.engine.dsl import (
    EmitStrategy as EmitStrategy,
)
from kstreams_repl.engine.dsl import (
    GlobalKTable as GlobalKTable,
)
from kstreams_repl.engine.dsl import (
    JoinWindows as JoinWindows,
)
from kstreams_repl.engine.dsl import (
    KGroupedStream as KGroupedStream,
)
from kstreams_repl.engine.dsl import (
    KGroupedTable as KGroupedTable,
)
from kstreams_repl.engine.dsl import (
    KStream as KStream,
)
from kstreams_repl.engine.dsl import (
    KTable as KTable,
)
from kstreams_repl.engine.dsl import (
    Materialized as Materialized,
)
from kstreams_repl.engine.dsl import (
    SessionWindows as SessionWindows,
)
from kstreams_repl.engine.dsl import (
    SlidingWindows as SlidingWindows,
)
from kstreams_repl.engine.dsl import (
    Stores as Stores,
)
from kstreams_repl.engine.dsl import (
    StreamsBuilder as StreamsBuilder,
)
from kstreams_repl.engine.dsl import (
    Suppressed as Suppressed,
)
from kstreams_repl.engine.dsl import (
    TimeWindows as TimeWindows,
)
from kstreams_repl.engine.dsl import (
    UnlimitedWindows as UnlimitedWindows,
)
from kstreams_repl.engine.dsl import (
    timestamps as timestamps,
)
from kstreams_repl.engine.operators.streams.async_options import AsyncOptions as AsyncOptions
from kstreams_repl.engine.processor import (
    FixedKeyProcessor as FixedKeyProcessor,
)
from kstreams_repl.engine.processor import (
    FixedKeyProcessorContext as FixedKeyProcessorContext,
)
from kstreams_repl.engine.processor import (
    FixedKeyRecord as FixedKeyRecord,
)
from kstreams_repl.engine.processor import (
    Processor as Processor,
)
from kstreams_repl.engine.processor import (
    ProcessorContext as ProcessorContext,
)
from kstreams_repl.engine.processor import (
    PunctuationType as PunctuationType,
)
from kstreams_repl.engine.processor import (
    Record as Record,
)
from kstreams_repl.engine.processor.current_call import (
    current_call as current_call,
)
from kstreams_repl.engine.processor.current_call import (
    current_calls as current_calls,
)
from kstreams_repl.engine.runtime.nodes.handlers import Response as Response
from kstreams_repl.engine.serdes import Serde as Serde
from kstreams_repl.engine.topology.bounds.offset_reset import AutoOffsetReset as AutoOffsetReset
from kstreams_repl.engine.topology.store_builder import (
    StoreBuilder as StoreBuilder,
)
from kstreams_repl.engine.topology.store_builder import (
    StoreKind as StoreKind,
)
from kstreams_repl.engine.topology.topology import Topology as Topology
from kstreams_repl.host.kafka.clients import ClientSettings as ClientSettings
from kstreams_repl.repl.look import look as look
from kstreams_repl.repl.session import (
    Application as Application,
)
from kstreams_repl.repl.session import (
    Session as Session,
)
from kstreams_repl.repl.session import (
    connect as connect,
)
from kstreams_repl.system import errors as errors
from kstreams_repl.system.errors import KStreamsError as KStreamsError
from kstreams_repl.system.secrets import secret as secret
from kstreams_repl.system.types import (
    ValueAndTimestamp as ValueAndTimestamp,
)
from kstreams_repl.system.types import (
    Windowed as Windowed,
)

__all__: list[str]
__version__: str

def load_ipython_extension(ipython: Any) -> None: ...
def unload_ipython_extension(ipython: Any) -> None: ...
