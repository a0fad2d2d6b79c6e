from kstreams_repl.host.instance.metadata import (
    HostInfo as HostInfo,
)
from kstreams_repl.host.instance.metadata import (
    KeyQueryMetadata as KeyQueryMetadata,
)
from kstreams_repl.host.instance.metadata import (
    LagInfo as LagInfo,
)
from kstreams_repl.host.instance.metadata import (
    StreamsMetadata as StreamsMetadata,
)
from kstreams_repl.repl.session.application.serve import QueryServer as QueryServer
from kstreams_repl.repl.session.views.stores.store_view import StoreView as StoreView
from kstreams_repl.serving.local.queryable_state import open_state as open_state
from kstreams_repl.serving.local.store_types import (
    QueryableStoreType as QueryableStoreType,
)
from kstreams_repl.serving.local.store_types import (
    QueryableStoreTypes as QueryableStoreTypes,
)
from kstreams_repl.serving.local.store_types import (
    StoreQueryParameters as StoreQueryParameters,
)
from kstreams_repl.serving.queries.position import (
    Position as Position,
)
from kstreams_repl.serving.queries.position import (
    PositionBound as PositionBound,
)
from kstreams_repl.serving.queries.query_types import (
    KeyQuery as KeyQuery,
)
from kstreams_repl.serving.queries.query_types import (
    KeysQuery as KeysQuery,
)
from kstreams_repl.serving.queries.query_types import (
    MultiVersionedKeyQuery as MultiVersionedKeyQuery,
)
from kstreams_repl.serving.queries.query_types import (
    Query as Query,
)
from kstreams_repl.serving.queries.query_types import (
    RangeQuery as RangeQuery,
)
from kstreams_repl.serving.queries.query_types import (
    ResultOrder as ResultOrder,
)
from kstreams_repl.serving.queries.query_types import (
    TimestampedKeyQuery as TimestampedKeyQuery,
)
from kstreams_repl.serving.queries.query_types import (
    TimestampedKeyWithHeadersQuery as TimestampedKeyWithHeadersQuery,
)
from kstreams_repl.serving.queries.query_types import (
    TimestampedRangeQuery as TimestampedRangeQuery,
)
from kstreams_repl.serving.queries.query_types import (
    TimestampedRangeWithHeadersQuery as TimestampedRangeWithHeadersQuery,
)
from kstreams_repl.serving.queries.query_types import (
    TimestampedWindowKeyWithHeadersQuery as TimestampedWindowKeyWithHeadersQuery,
)
from kstreams_repl.serving.queries.query_types import (
    TimestampedWindowRangeWithHeadersQuery as TimestampedWindowRangeWithHeadersQuery,
)
from kstreams_repl.serving.queries.query_types import (
    VersionedKeyQuery as VersionedKeyQuery,
)
from kstreams_repl.serving.queries.query_types import (
    VersionedRangeQuery as VersionedRangeQuery,
)
from kstreams_repl.serving.queries.query_types import (
    WindowKeyQuery as WindowKeyQuery,
)
from kstreams_repl.serving.queries.query_types import (
    WindowRangeQuery as WindowRangeQuery,
)
from kstreams_repl.serving.queries.state_query import (
    FailureReason as FailureReason,
)
from kstreams_repl.serving.queries.state_query import (
    QueryResult as QueryResult,
)
from kstreams_repl.serving.queries.state_query import (
    StateQueryRequest as StateQueryRequest,
)
from kstreams_repl.serving.queries.state_query import (
    StateQueryResult as StateQueryResult,
)
from kstreams_repl.serving.remote.client import (
    AsyncQueryClient as AsyncQueryClient,
)
from kstreams_repl.serving.remote.client import (
    QueryClient as QueryClient,
)
from kstreams_repl.serving.remote.client import (
    connect as connect,
)
from kstreams_repl.serving.remote.client import (
    connect_async as connect_async,
)
from kstreams_repl.serving.remote.client_requests import RemoteResult as RemoteResult

__all__: list[str]
