from kstreams_repl.engine.dsl.kip28 import (
    DefaultPartitionGrouper as DefaultPartitionGrouper,
)
from kstreams_repl.engine.dsl.kip28 import (
    KStreamBuilder as KStreamBuilder,
)
from kstreams_repl.engine.dsl.kip28 import (
    KStreamWindowed as KStreamWindowed,
)
from kstreams_repl.engine.dsl.kip28 import (
    PartitionGrouper as PartitionGrouper,
)
from kstreams_repl.engine.dsl.kip28 import (
    Processor as Processor,
)
from kstreams_repl.engine.dsl.kip28 import (
    ProcessorContext as ProcessorContext,
)
from kstreams_repl.engine.dsl.kip28 import (
    ProcessorDef as ProcessorDef,
)
from kstreams_repl.engine.dsl.kip28 import (
    TopologyBuilder as TopologyBuilder,
)

__all__: list[str]
