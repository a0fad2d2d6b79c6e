from kstreams_repl.engine.dsl.graph.call_log import Problem as Problem
from kstreams_repl.engine.metrics.metrics_snapshot import Metric as Metric
from kstreams_repl.engine.runtime.nodes.node_counts import NodeCount as NodeCount
from kstreams_repl.engine.topology import TopologyDescription as TopologyDescription
from kstreams_repl.engine.topology.description.describe import (
    DescribedNode as DescribedNode,
)
from kstreams_repl.engine.topology.description.describe import (
    DescribedSubtopology as DescribedSubtopology,
)
from kstreams_repl.host.instance.reports.run_progress import RunProgress as RunProgress
from kstreams_repl.host.kafka.admin import (
    Admin as Admin,
)
from kstreams_repl.host.kafka.admin import (
    TopicDescription as TopicDescription,
)
from kstreams_repl.host.kafka.group_admin import CommittedOffset as CommittedOffset
from kstreams_repl.host.spark.instance_reports import (
    ApplicationReport as ApplicationReport,
)
from kstreams_repl.host.spark.instance_reports import (
    InstanceReport as InstanceReport,
)
from kstreams_repl.host.spark.instance_reports import (
    TaskReport as TaskReport,
)
from kstreams_repl.pictures.chart import (
    Chart as Chart,
)
from kstreams_repl.pictures.chart import (
    ChartKind as ChartKind,
)
from kstreams_repl.pictures.diff_text import DiffText as DiffText
from kstreams_repl.pictures.graph.picture import Picture as Picture
from kstreams_repl.pictures.markup import Markup as Markup
from kstreams_repl.pictures.retries import (
    Retries as Retries,
)
from kstreams_repl.pictures.retries import (
    RetryReport as RetryReport,
)
from kstreams_repl.pictures.retries import (
    WaitingRecord as WaitingRecord,
)
from kstreams_repl.pictures.table import Table as Table
from kstreams_repl.repl.inspection.result import SqlResult as SqlResult
from kstreams_repl.repl.look import Look as Look
from kstreams_repl.repl.session.application.batch.batch_report import (
    BatchReport as BatchReport,
)
from kstreams_repl.repl.session.application.batch.batch_report import (
    PartitionRange as PartitionRange,
)
from kstreams_repl.repl.session.application.batch.batch_report import (
    WrittenTable as WrittenTable,
)
from kstreams_repl.repl.session.application.edits.edit import EditPlan as EditPlan
from kstreams_repl.repl.session.application.edits.versions import (
    Version as Version,
)
from kstreams_repl.repl.session.application.edits.versions import (
    Versions as Versions,
)
from kstreams_repl.repl.session.application.forks.fork import (
    Fork as Fork,
)
from kstreams_repl.repl.session.application.forks.fork import (
    Forks as Forks,
)
from kstreams_repl.repl.session.application.forks.fork_plan import ForkPlan as ForkPlan
from kstreams_repl.repl.session.application.life.listeners import (
    Listeners as Listeners,
)
from kstreams_repl.repl.session.application.life.listeners import (
    UncaughtResponse as UncaughtResponse,
)
from kstreams_repl.repl.session.application.life.state import ApplicationState as ApplicationState
from kstreams_repl.repl.session.application.savepoints.savepoints import Savepoint as Savepoint
from kstreams_repl.repl.session.applications import Applications as Applications
from kstreams_repl.repl.session.cleanup import Cleanup as Cleanup
from kstreams_repl.repl.session.left_applications import LeftApplication as LeftApplication
from kstreams_repl.repl.session.reset import Reset as Reset
from kstreams_repl.repl.session.session_file import (
    Saved as Saved,
)
from kstreams_repl.repl.session.session_file import (
    SavedVersion as SavedVersion,
)
from kstreams_repl.repl.session.session_file import (
    SessionFiles as SessionFiles,
)
from kstreams_repl.repl.session.source.source_slice import Program as Program
from kstreams_repl.repl.session.topics.records import (
    ReadRecord as ReadRecord,
)
from kstreams_repl.repl.session.topics.records import (
    Records as Records,
)
from kstreams_repl.repl.session.views.compare.comparison import (
    ComparedRows as ComparedRows,
)
from kstreams_repl.repl.session.views.compare.comparison import (
    Comparison as Comparison,
)
from kstreams_repl.repl.session.views.compare.comparison import (
    FirstDifference as FirstDifference,
)
from kstreams_repl.repl.session.views.compare.comparison import (
    Noise as Noise,
)
from kstreams_repl.repl.session.views.compare.comparison import (
    RowDifference as RowDifference,
)
from kstreams_repl.repl.session.views.counts.metrics_view import MetricsView as MetricsView
from kstreams_repl.repl.session.views.counts.record_counts import (
    Counts as Counts,
)
from kstreams_repl.repl.session.views.counts.record_counts import (
    NodeRate as NodeRate,
)
from kstreams_repl.repl.session.views.past.causes.result import (
    Cause as Cause,
)
from kstreams_repl.repl.session.views.past.causes.result import (
    Causes as Causes,
)
from kstreams_repl.repl.session.views.past.debug.debugger import Debugger as Debugger
from kstreams_repl.repl.session.views.past.replay.record_trace import (
    NodeVisit as NodeVisit,
)
from kstreams_repl.repl.session.views.past.replay.record_trace import (
    RecordTrace as RecordTrace,
)
from kstreams_repl.repl.session.views.past.replay.record_trace import (
    SentRecord as SentRecord,
)
from kstreams_repl.repl.session.views.past.replay.record_trace import (
    StoreAccess as StoreAccess,
)
from kstreams_repl.repl.session.views.past.replay.record_trace import (
    TracedRecord as TracedRecord,
)
from kstreams_repl.repl.session.views.values.sample import (
    NodeSample as NodeSample,
)
from kstreams_repl.repl.session.views.values.sample import (
    Sample as Sample,
)

__all__: list[str]
