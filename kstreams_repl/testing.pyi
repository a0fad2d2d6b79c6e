from kstreams_repl.host.spark.startup.standalone_cluster import StandaloneCluster as StandaloneCluster
from kstreams_repl.repl.session.views.compare.topologies import compare_topologies as compare_topologies
from kstreams_repl.test_driver import tables as tables
from kstreams_repl.test_driver.driver import (
    ProducedRecord as ProducedRecord,
)
from kstreams_repl.test_driver.driver import (
    TestInputTopic as TestInputTopic,
)
from kstreams_repl.test_driver.driver import (
    TestOutputTopic as TestOutputTopic,
)
from kstreams_repl.test_driver.driver import (
    TestRecord as TestRecord,
)
from kstreams_repl.test_driver.driver import (
    TopologyTestDriver as TopologyTestDriver,
)
from kstreams_repl.test_driver.mock_context import (
    CapturedForward as CapturedForward,
)
from kstreams_repl.test_driver.mock_context import (
    CapturedPunctuator as CapturedPunctuator,
)
from kstreams_repl.test_driver.mock_context import (
    MockProcessorContext as MockProcessorContext,
)
from kstreams_repl.test_driver.recording import (
    RecordedRecord as RecordedRecord,
)
from kstreams_repl.test_driver.recording import (
    Recording as Recording,
)
from kstreams_repl.test_driver.recording import (
    outputs_of as outputs_of,
)
from kstreams_repl.test_driver.recording import (
    recording_fixture as recording_fixture,
)
from kstreams_repl.test_driver.saved_state import (
    SavedState as SavedState,
)

__all__: list[str]
