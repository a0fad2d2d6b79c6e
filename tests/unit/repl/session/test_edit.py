"""Edits of functions whose own text stays: what they read from the notebook has changed."""

from __future__ import annotations

import linecache
from pathlib import Path
from typing import Any

import numpy
import pytest

from kstreams_repl.host.kafka.admin import NewTopicSpec
from kstreams_repl.repl.session.application.edits.versions import make_topology
from kstreams_repl.repl.session.application.starting import journal_lookup
from kstreams_repl.repl.session.source import source_slice as program_module
from kstreams_repl.repl.session.source.cell_history import CellHistory
from kstreams_repl.system.errors import KStreamsError
from tests.unit.repl.session.small_cluster import PARTITIONS, SmallCluster, SmallSession

CELLS = """
import kstreams_repl as ks
STEP = 1
def counted(value):
    return value + STEP
builder = ks.StreamsBuilder()
source = builder.stream("in", key_serde="string", value_serde="long")
source.map_values(lambda value: counted(value), name="mapped").to("out", key_serde="string", value_serde="long")
"""


@pytest.fixture
def notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs cells beside a session."""
    monkeypatch.setattr(program_module, "history", CellHistory())

    class Notebook:
        cluster = SmallCluster()
        cells = 0

        def __init__(self) -> None:
            self.cluster.create_topics([NewTopicSpec(name, PARTITIONS) for name in ("in", "out")])
            self.session = SmallSession(self.cluster, tmp_path)
            self.space: dict[str, Any] = {"__name__": "__main__", "session": self.session}

        def run(self, text: str) -> None:
            self.cells += 1
            file = f"<cell {self.cells}>"
            linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
            program_module.history.note(file, text, file=file)
            exec(compile(text, file, "exec"), self.space)

    return Notebook()


def test_an_edit_takes_helpers_and_values_of_the_notebook_that_have_changed(notebook: Any) -> None:
    """There was nothing to do, the plan said, and the old ones went on."""
    notebook.run(CELLS)
    notebook.run("app = session.deploy(builder, 'app')\napp._core.finish_start()")
    app = notebook.space["app"]
    try:
        assert app.changes() is None
        notebook.run("STEP = 10")
        assert [node.name for node in app.changes().diff.nodes if node.reason] == ["mapped"]
        notebook.run("plan = app.edit(builder)")
        assert notebook.space["plan"].applied and len(app.versions) == 2 and "STEP = 10" in app.versions[-1].source
        assert app.changes() is None
        notebook.run("def counted(value):\n    return value + 2 * STEP\napp.edit(builder)")
        assert len(app.versions) == 3 and "2 * STEP" in app.versions[-1].source
    finally:
        app.stop()


def test_a_rollback_brings_back_the_helpers_and_values_of_then(notebook: Any) -> None:
    notebook.run(CELLS)
    notebook.run("app = session.deploy(builder, 'app')\napp._core.finish_start()")
    app = notebook.space["app"]
    try:
        notebook.run("STEP = 10")
        notebook.run("app.edit(builder)")
        said: list[str] = []
        app._core.client.report = said.append
        app.rollback()
        assert [line for line in said if "still differs from it (mapped), and app.edit(builder) applies that again" in line]
        function = app.topology.node("mapped").operator.mapper
        assert function(5) == 6
        assert app.changes() is not None, "the notebook says something else than what runs"
    finally:
        app.stop()


def test_a_start_with_values_that_have_changed_is_a_version(notebook: Any) -> None:
    """It ran with the new ones, and the history, an attach and a rollback had the old ones; a detached one ran with the old ones, and an
    edit found nothing to do."""
    notebook.run(CELLS)
    notebook.run("app = session.deploy(builder, 'app')\napp._core.finish_start()")
    app = notebook.space["app"]
    try:
        notebook.run("STEP = 10")
        app.pause()
        notebook.run("app.resume()")
        assert len(app.versions) == 1, "after a pause what was sent goes on"
        assert app.changes() is not None
        app.stop()
        notebook.run("app.resume()")
        assert [version.number for version in app.versions] == [1, 2] and "STEP = 10" in app.versions[-1].source
        assert notebook.cluster.journal.desired.version == 2 and app.changes() is None
        app.rollback()
        assert app.topology.node("mapped").operator.mapper(5) == 6
        app.stop()
        notebook.run("app.resume()")
        assert len(app.versions) == 3
    finally:
        app.stop()


@pytest.mark.parametrize(
    ("step", "missing"), [(float("-inf"), ()), (float("nan"), ()), (numpy.float64(1.5), ("STEP",))], ids=["-inf", "nan", "numpy's"]
)
def test_a_value_without_a_statement_is_written_down_so_that_it_can_be_read(notebook: Any, step: Any, missing: tuple[str, ...]) -> None:
    """`STEP = nan` and `STEP = np.float64(1.5)` were NameErrors in the next kernel."""
    notebook.run(CELLS.replace("STEP = 1", ""))
    notebook.space["STEP"] = step  # by a widget, say
    notebook.run("app = session.deploy(builder, 'app')\napp._core.finish_start()\napp.stop()")
    saved = notebook.space["app"]._core.history.saved(1)
    assert saved.missing == missing
    if not missing:
        made = make_topology(notebook.session.files, saved, "app", notebook.space["app"].config)
        assert repr(made.node("mapped").operator.mapper(1)) == repr(1 + step)


def test_a_statement_that_builds_and_deploys_is_no_part_of_the_program(notebook: Any) -> None:
    """Its text was, and the connect's: passwords came into the journal, and an attach connected and deployed before it knew what it had."""
    notebook.space["connect"] = lambda **given: notebook.session
    notebook.run("session = connect(sasl_password='hunter2')")
    notebook.run("import kstreams_repl as ks\nbuilder = ks.StreamsBuilder()")
    notebook.run(
        "app = session.deploy(\n  builder.stream('in', value_serde='long').map_values(lambda value: value + 1, name='mapped'), 'app')"
    )
    app = notebook.space["app"]
    app._core.finish_start()
    try:
        notebook.run("plan = app.edit(builder.replace('mapped', lambda value: value + 2))")
        notebook.run("builder.stream('out').filter(lambda key, value: True, name='kept')\nplan = app.edit(topology=builder)")
        notebook.run("plan = app.edit(builder.replace('kept', lambda key, value: False))")
    finally:
        app.stop()
    assert len(app.versions) == 4
    for number, adds in ((1, 1), (2, 2), (3, 2), (4, 2)):
        saved = app._core.history.saved(number)
        assert saved.missing == ()
        assert not [word for word in ("deploy", "edit(", "connect", "hunter2") if word in saved.text], saved.text
        made = make_topology(app._core.client.files, saved, "app", app.config)
        assert made.node("mapped").operator.mapper(1) == 1 + adds
    assert made.node("kept").operator.predicate(1, 1) is False


def test_what_is_built_where_it_is_deployed_is_for_reading_only(notebook: Any) -> None:
    """The block was the program, connect and deploy with it."""
    notebook.space["connect"] = lambda **given: notebook.session
    block = "    {0}builder = ks.StreamsBuilder()\n    builder.stream('in').filter(lambda key, value: True, name='kept')\n    app = {1}"
    notebook.run("import contextlib\nimport kstreams_repl as ks\nnotebook_of = contextlib.nullcontext")
    deploy = "session.deploy(builder, 'app')\n    app._core.finish_start()"
    notebook.run("with notebook_of(connect(sasl_password='hunter2')) as session:\n" + block.format("", deploy))
    app = notebook.space["app"]
    try:
        notebook.run("plan = app.edit(builder.replace('kept', lambda key, value: False))")
    finally:
        app.stop()
    for saved in map(app._core.history.saved, (1, 2)):
        assert saved.missing and "hunter2" not in saved.text and "deploy(" not in saved.text


def test_a_plan_and_the_versions_show_what_changed_in_the_code(notebook: Any) -> None:
    notebook.run(CELLS)
    notebook.run("app = session.deploy(builder, 'app')\napp._core.finish_start()")
    app = notebook.space["app"]
    try:
        notebook.run(CELLS.replace("lambda value: counted(value)", "lambda value: 2 * counted(value)"))
        notebook.run("plan = app.edit(builder, dry_run=True)")
        plan = notebook.space["plan"]
        old, new = (f'source.map_values(lambda value: {code}, name="mapped").to("out", key_serde="string", value_serde="long")'
                    for code in ("counted(value)", "2 * counted(value)"))  # fmt: skip
        assert repr(plan).splitlines()[-5:] == ["--- mapped (runs)", "+++ mapped (edited)", "@@ -1 +1 @@", f"-{old}", f"+{new}"]
        assert "2 * counted(value)" in plan._repr_mimebundle_()["text/html"]
        notebook.run("app.edit(builder)\napp._core.finish_start()")
        assert app.versions[1].diff(app.versions[0]).lines[:2] == ("--- mapped (version 1)", "+++ mapped (version 2)")
    finally:
        app.stop()


def test_what_is_attached_shows_its_lines_whatever_made_its_version(notebook: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a skip or a rollback the drawer of a node was an empty box, and its error had no line (W8)."""
    monkeypatch.setattr(journal_lookup, "journal_of", lambda client, name: notebook.cluster.journal)
    notebook.run(CELLS)
    notebook.run("app = session.deploy(builder, 'app')\napp._core.finish_start()")
    app = notebook.space["app"]
    notebook.run("plan = app.edit(builder.replace('mapped', lambda value: counted(value) + 1))")
    app.rollback()
    for _ in range(2):
        app.stop()
        for cell in range(1, notebook.cells + 1):
            linecache.cache.pop(f"<cell {cell}>", None)
        session = SmallSession(notebook.cluster, tmp_path)
        app = session.attach("app")
        origin = app.topology.node("mapped").origin
        assert "source.map_values(lambda value: counted(value)" in linecache.getline(origin.file, origin.line)
        # a version of the same text, as a skip makes it
        config = app.config.with_(**{"repl.skip.records": "in-0@1"})
        app._core.deployment.version = app._core.history.keep(app._core.history.program(), app.topology, config)
        app.resume()
    app.stop()
    assert len(app.versions) == 4


def test_the_error_of_an_application_that_failed_under_an_earlier_kernel_names_the_cell(notebook: Any) -> None:
    notebook.run(CELLS)
    notebook.run("app = session.deploy(builder, 'app')\napp._core.finish_start()")
    app = notebook.space["app"]
    app.stop()
    app._core.start_error = KStreamsError("KeyError: 'price'\n  /tmp/ipykernel_17/42.py:3", user_line=("/tmp/ipykernel_17/42.py", 3, ""))
    linecache.cache["/tmp/ipykernel_17/42.py"] = (0, None, ["\n", "\n", "order['price']\n"], "/tmp/ipykernel_17/42.py")
    for _ in range(2):
        assert app.error.message == "KeyError: 'price'\n  a cell of another kernel, line 3: order['price']"
