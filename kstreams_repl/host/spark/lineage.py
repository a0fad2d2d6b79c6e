"""OpenLineage events of an application: which topics and tables it reads and writes, from when to when, in which version.

Each time that it runs is a run: START when it begins, COMPLETE when it is paused, stopped, edited (another run begins then) or its bounded
input is over, FAIL with the error when it fails. A topic is the dataset that OpenLineage names for Kafka, with the fields of its values
where their serde has a schema. Columns are not traced through functions or SQL. Events are sent by the client of OpenLineage on a thread;
what cannot be sent is told in the log and ends nothing.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.topology.nodes import SinkNode, SourceNode
from kstreams_repl.host.spark.application_state import Status
from kstreams_repl.system.extras import extras

_LOG = logging.getLogger("kstreams_repl.host.spark")
_ENDS = {Status.PAUSED: "COMPLETE", Status.STOPPED: "COMPLETE", Status.FAILED: "FAIL"}
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
        written: dict[tuple[str, str], Any] = {}
        for node in topology.nodes.values():
            if isinstance(node, SourceNode):
                read |= {(kafka, topic): node.value_serde for topic in node.topics if topic not in own}
            elif isinstance(node, SinkNode) and node.table is not None:
                written[("file", str(node.table.path))] = None
            elif isinstance(node, SinkNode) and node.topic is not None and node.topic not in own:
                written[(kafka, node.topic)] = node.value_serde
        return {
            "inputs": [InputDataset(*name, facets=self._facets(serde)) for name, serde in sorted(read.items(), key=_name)],
            "outputs": [OutputDataset(*name, facets=self._facets(serde)) for name, serde in sorted(written.items(), key=_name)],
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


def _name(dataset: tuple[tuple[str, str], Any]) -> tuple[str, str]:
    return dataset[0]
