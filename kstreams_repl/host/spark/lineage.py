"""OpenLineage events of an application: which topics and tables it reads and writes, from when to when, in which version.

Each time that it runs is a run: START when it begins, COMPLETE when it is paused, stopped, edited (another run begins then) or its bounded
input is over, FAIL with the error when it fails. A topic is the dataset that OpenLineage names for Kafka, with the fields of its values
where their serde has a schema. A field of an output comes from that of an input if both have it and nothing is on the way but filters,
new keys, branches, merges and repartition topics: what functions, joins and SQL make of a value is not traced. Events are sent by the
client of OpenLineage on a thread; what cannot be sent is told in the log and ends nothing.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.operators.streams.pass_through import PassThrough, TablePassThrough
from kstreams_repl.engine.operators.streams.stream_branch import StreamBranch
from kstreams_repl.engine.operators.streams.stream_filter import StreamFilter
from kstreams_repl.engine.operators.streams.stream_peek import StreamPeek, StreamPrint
from kstreams_repl.engine.operators.streams.stream_select_key import StreamSelectKey
from kstreams_repl.engine.operators.tables.table_filter import TableFilter
from kstreams_repl.engine.operators.tables.table_source import TableSource
from kstreams_repl.engine.operators.tables.table_suppress import TableSuppress
from kstreams_repl.engine.operators.tables.table_to_stream import TableToStream
from kstreams_repl.engine.topology.nodes import ProcessorNode, SinkNode, SourceNode
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.spark.application_state import Status
from kstreams_repl.system.extras import extras

_LOG = logging.getLogger("kstreams_repl.host.spark")
_ENDS = {Status.PAUSED: "COMPLETE", Status.STOPPED: "COMPLETE", Status.FAILED: "FAIL"}
_SAME_VALUE = (
    PassThrough, StreamBranch, StreamFilter, StreamPeek, StreamPrint, StreamSelectKey, TableFilter, TablePassThrough, TableSource,
    TableSuppress, TableToStream,
)  # fmt: skip
"""Operators that hand on each value as it is."""
_PRODUCER = "https://pypi.org/project/kstreams-repl/"


class Lineage:
    """The events of one application. Called with the deployment's lock held."""

    def __init__(self, config: StreamsConfig) -> None:
        with extras():
            from openlineage.client import OpenLineageClient
        self._client = OpenLineageClient(config={"transport": {"type": "http", "url": config["repl.openlineage.url"]}})
        self._config = config
        self._run: str | None = None
        self._datasets: dict[str, list[Any]] = {}
        self._sending: threading.Thread | None = None

    def entered(self, state: Status, topology: Any, error: Exception | None) -> None:
        """Tell of the application's new state."""
        from openlineage.client.uuid import generate_new_uuid

        if state is Status.RUNNING and self._run is None:
            self._run, self._datasets = str(generate_new_uuid()), self._datasets_of(topology)
            self._send("START", None)
        elif state in _ENDS and self._run is not None:
            self._send(_ENDS[state], error)
            self._run = None

    def _send(self, kind: str, error: Exception | None) -> None:
        from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
        from openlineage.client.facet_v2 import error_message_run, job_type_job

        bounded = self._config["autostop.at"] is not None
        job: dict[str, Any] = {"jobType": job_type_job.JobTypeJobFacet("BATCH" if bounded else "STREAMING", "KSTREAMS_REPL", "APPLICATION")}
        failed: dict[str, Any] = {} if error is None else {"errorMessage": error_message_run.ErrorMessageRunFacet(str(error), "PYTHON")}
        event = RunEvent(
            eventType=RunState[kind],
            eventTime=datetime.now(UTC).isoformat(),
            run=Run(str(self._run), failed),
            job=Job("kstreams_repl", self._config["application.id"], job),
            producer=_PRODUCER,
            **self._datasets,
        )
        before = self._sending

        def send() -> None:
            if before is not None:
                before.join()
            try:
                self._client.emit(event)
            except Exception as failure:  # lineage is told, never waited for
                _LOG.warning("%s of %s was not sent to OpenLineage: %s", kind, event.job.name, failure)

        self._sending = threading.Thread(target=send, name="openlineage")
        self._sending.start()

    def _datasets_of(self, topology: Any) -> dict[str, list[Any]]:
        from openlineage.client.event_v2 import InputDataset, OutputDataset

        host, _, port = str(self._config["bootstrap.servers"]).partition(",")[0].strip().rpartition(":")
        kafka, own = f"kafka://{host}:{port}", topology.internal_topics
        read: dict[tuple[str, str], Any] = {}
        written: dict[tuple[str, str], list[SinkNode]] = {}
        for node in topology.nodes.values():
            if isinstance(node, SourceNode):
                read |= {(kafka, topic): node.value_serde for topic in node.topics if topic not in own}
            elif isinstance(node, SinkNode) and node.table is not None:
                written[("file", str(node.table.path))] = [node]
            elif isinstance(node, SinkNode) and node.topic is not None and node.topic not in own:
                written.setdefault((kafka, node.topic), []).append(node)
        inputs = {name: self._facets(serde) for name, serde in sorted(read.items(), key=_name)}
        outputs = {
            name: self._facets(nodes[-1].value_serde if nodes[-1].table is None else None)
            for name, nodes in sorted(written.items(), key=_name)
        }
        for name, facets in outputs.items():
            topics = _origins(topology, (parent for node in written[name] for parent in node.parents))
            facets |= _same_columns({(kafka, topic): inputs[(kafka, topic)] for topic in sorted(topics)}, facets)
        return {
            "inputs": [InputDataset(*name, facets=facets) for name, facets in inputs.items()],
            "outputs": [OutputDataset(*name, facets=facets) for name, facets in outputs.items()],
        }

    def _facets(self, serde: Any) -> dict[str, Any]:
        from openlineage.client.facet_v2 import schema_dataset

        declared = getattr(serde, "record_schema", None)
        if not declared:
            return {}
        from kstreams_repl.engine.serdes.schemas.columns import NoColumnError, columns_of

        try:
            fields: Iterable[Any] = columns_of(declared)
        except NoColumnError:
            return {}
        columns = [schema_dataset.SchemaDatasetFacetFields(field.name, str(field.type)) for field in fields]
        return {"schema": schema_dataset.SchemaDatasetFacet(columns)}


def _origins(topology: Topology, names: Iterable[str]) -> set[str]:
    """Return the topics whose values reach these nodes as they are; none if other values do, too."""
    topics: set[str] = set()
    above, seen = list(names), set[str]()
    while above:
        name = above.pop()
        node = topology.nodes[name]
        if name in seen:
            continue
        seen.add(name)
        if isinstance(node, ProcessorNode) and isinstance(node.operator, _SAME_VALUE):
            above += node.parents
        elif isinstance(node, SourceNode) and node.topics:
            topics |= set(node.topics) - set(topology.internal_topics)
            sinks = (sink for sink in topology.nodes.values() if isinstance(sink, SinkNode) and sink.topic in node.topics and sink.internal)
            above += [parent for sink in sinks for parent in sink.parents]
        else:  # a source by pattern, too: its topics are not known here
            return set()
    return topics


def _same_columns(inputs: dict[tuple[str, str], dict[str, Any]], output: dict[str, Any]) -> dict[str, Any]:
    """Return the facet of the columns that an output has from inputs whose values it gets as they are."""
    from openlineage.client.facet_v2 import column_lineage_dataset

    fields: dict[str, list[Any]] = {field.name: [] for facet in output.values() for field in facet.fields}
    identity = [column_lineage_dataset.Transformation("DIRECT", "IDENTITY")]
    for name, facets in inputs.items():
        for column in (field.name for facet in facets.values() for field in facet.fields if field.name in fields):
            fields[column].append(column_lineage_dataset.InputField(*name, column, identity))
    known = {column: column_lineage_dataset.Fields(sources) for column, sources in fields.items() if sources}
    return {"columnLineage": column_lineage_dataset.ColumnLineageDatasetFacet(known)} if known else {}


def _name(dataset: tuple[tuple[str, str], Any]) -> tuple[str, str]:
    return dataset[0]
