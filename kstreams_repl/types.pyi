from kstreams_repl.engine.dsl import (
    BranchedKStream as BranchedKStream,
)
from kstreams_repl.engine.dsl import (
    CogroupedKStream as CogroupedKStream,
)
from kstreams_repl.engine.dsl import (
    SessionWindowedCogroupedKStream as SessionWindowedCogroupedKStream,
)
from kstreams_repl.engine.dsl import (
    SessionWindowedKStream as SessionWindowedKStream,
)
from kstreams_repl.engine.dsl import (
    SlidingWindowedKStream as SlidingWindowedKStream,
)
from kstreams_repl.engine.dsl import (
    TimeWindowedCogroupedKStream as TimeWindowedCogroupedKStream,
)
from kstreams_repl.engine.dsl import (
    TimeWindowedKStream as TimeWindowedKStream,
)
from kstreams_repl.engine.metrics.custom import (
    CustomSensor as CustomSensor,
)
from kstreams_repl.engine.metrics.custom import (
    StreamsMetrics as StreamsMetrics,
)
from kstreams_repl.engine.processor import (
    Cancellable as Cancellable,
)
from kstreams_repl.engine.processor import (
    ProcessingContext as ProcessingContext,
)
from kstreams_repl.engine.processor.current_call import CallContext as CallContext
from kstreams_repl.engine.runtime.nodes.handlers import ErrorContext as ErrorContext
from kstreams_repl.engine.topology import (
    Node as Node,
)
from kstreams_repl.engine.topology import (
    Subtopology as Subtopology,
)
from kstreams_repl.system.secrets import SecretReference as SecretReference
from kstreams_repl.system.types import (
    AggregationWithHeaders as AggregationWithHeaders,
)
from kstreams_repl.system.types import (
    RecordMetadata as RecordMetadata,
)
from kstreams_repl.system.types import (
    RecordPosition as RecordPosition,
)
from kstreams_repl.system.types import (
    TaskId as TaskId,
)
from kstreams_repl.system.types import (
    TopicPartition as TopicPartition,
)
from kstreams_repl.system.types import (
    UserLine as UserLine,
)
from kstreams_repl.system.types import (
    ValueTimestampHeaders as ValueTimestampHeaders,
)
from kstreams_repl.system.types import (
    VersionedRecord as VersionedRecord,
)

__all__: list[str]
