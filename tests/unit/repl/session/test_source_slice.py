"""Programs: the statements a topology comes from, cut out of files and cells, run again to the same topology."""

from __future__ import annotations

import importlib
import linecache
import sys
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.engine.topology.differences.diff import diff
from kstreams_repl.repl.session.application.edits.topology_resolution import topology_of
from kstreams_repl.repl.session.source import source_slice as program_module
from kstreams_repl.repl.session.source.cell_history import CellHistory
from kstreams_repl.repl.session.source.source_slice import Program, deployed_as, program_of
from tests.unit.kernel_ext.test_extension import new_shell, run

STAND_IN = """
class Recorder:
    program = topology = None

    def deploy(self, topology, name="app", **settings):
        self.topology = topology_of(topology)
        self.program = program_of(topology, self.topology)
"""
_space: dict[str, Any] = {"__name__": "kstreams_repl.stand_in", "topology_of": topology_of, "program_of": program_of}
exec(STAND_IN, _space)
Recorder = _space["Recorder"]
"""Stands where a session stands, in a frame that is not the user's: keeps the program of what is deployed."""


def deployed(text: str, tmp_path: Path) -> Any:
    """Run a script that calls session.deploy."""
    file = tmp_path / "script.py"
    file.write_text(text)
    linecache.checkcache(str(file))
    session = Recorder()
    exec(compile(text, str(file), "exec"), {"__name__": "script", "session": session, "__file__": str(file)})
    return session


def same(session: Any) -> Program:
    """The program makes the same topology, without what has nothing to do with it."""
    program = session.program
    assert program is not None and program.missing == (), program
    assert str(program.run().describe()) == str(session.topology.describe())
    return program


SCRIPT = """
import kstreams_repl as ks
from kstreams_repl import serdes
import json as js
LIMIT = 3
noise = [x * 2 for x in range(3)]
def long_enough(key, word):
    return len(word) > LIMIT and checked(word)
def checked(word):
    return js.dumps(word) is not None
def unused():
    raise RuntimeError("never")
builder = ks.StreamsBuilder()
print("side effect")
words = builder.stream("words", key_serde="string", value_serde=serdes.string)
kept = words.filter(long_enough, name="kept")
kept.group_by_key().count(store="counts")
session.deploy(builder, "app")
kept.to("after")
"""


def test_only_what_the_topology_comes_from_is_taken(tmp_path: Path) -> None:
    text = same(deployed(SCRIPT, tmp_path)).text
    for taken in ("def long_enough", "def checked", "LIMIT = 3", "import json as js", "StreamsBuilder()", "count(store"):
        assert taken in text
    for left in ("side effect", "noise", "unused", "session.deploy", "after"):
        assert left not in text


def test_an_expression_with_local_names_is_written_down(tmp_path: Path) -> None:
    script = """
import kstreams_repl as ks
def make(topic, *, limit):
    builder = ks.StreamsBuilder()
    builder.stream(topic, value_serde="string").filter(lambda k, v: len(v) > limit, name="kept")
    return builder
def go():
    topic, limit = "words", 7
    session.deploy(
        make(topic, limit=limit),
        "app",
    )
go()
"""
    text = same(deployed(script, tmp_path)).text
    assert "topic = 'words'" in text and "limit = 7" in text


def test_a_processor_topology_with_its_stores_is_taken(tmp_path: Path) -> None:
    script = """
from __future__ import annotations
from typing import TYPE_CHECKING
from kstreams_repl import Processor, StoreBuilder, StoreKind, Topology, serdes
if TYPE_CHECKING:
    from nowhere import Nothing
class Counter(Processor):
    step: int = 1
    def process(self, record) -> Nothing:
        store = self.context.get_state_store("counts")
        store.put(record.key, (store.get(record.key) or 0) + self.step)
topology = Topology()
topology.add_source("in", "words").add_processor("count", Counter, "in")
topology.add_state_store(StoreBuilder("counts", StoreKind.KEY_VALUE, key_serde=serdes.string, value_serde=serdes.long), "count")
session.deploy(topology)
"""
    program: Program = same(deployed(script, tmp_path))
    assert list(program.run().stores) == ["counts"]


def test_what_cannot_be_found_is_told(tmp_path: Path) -> None:
    script = """
import kstreams_repl as ks
class Handle: pass
def go(limits):
    builder = ks.StreamsBuilder()
    builder.stream("words").filter(lambda k, v: v in limits)
    session.deploy(builder)
go(object())
"""
    program = deployed(script, tmp_path).program
    assert program is not None and "builder" in program.missing


def test_a_name_that_is_built_up_comes_with_all_its_definitions(tmp_path: Path) -> None:
    script = """
import kstreams_repl as ks
names = ("a",)
names = (*names, "b")
builder = ks.StreamsBuilder()
builder.stream(names)
session.deploy(topology=builder, name="x")
names = ("c",)
"""
    assert same(deployed(script, tmp_path)).run().source_topics() == ("a", "b")


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(program_module, "history", CellHistory())
    import kernel_ext.cell_tracker
    import kernel_ext.magics.topo_magics

    monkeypatch.setattr(kernel_ext.cell_tracker, "history", program_module.history)
    monkeypatch.setattr(kernel_ext.magics.topo_magics, "history", program_module.history)
    shell = new_shell()
    run(shell, "%load_ext kstreams_repl")
    shell.user_ns["session"] = Recorder()
    yield shell
    run(shell, "%unload_ext kstreams_repl")


def test_cells_give_their_last_definitions(shell: Any) -> None:
    run(shell, "import kstreams_repl as ks\nbuilder = ks.StreamsBuilder()")
    run(shell, "def keep(k, v):\n    return v > 1")
    run(shell, "def keep(k, v):\n    return v > 2")
    run(shell, "s = builder.stream('words', value_serde='json').filter(keep, name='kept')\nprint('drawn')")
    run(shell, "session.deploy(builder, 'app')")
    text = same(shell.user_ns["session"]).text
    assert "v > 2" in text and "drawn" not in text


def test_cells_with_the_magic_bring_their_builder(shell: Any) -> None:
    run(shell, "limit = 4")
    run(shell, "%%topo words\ns = builder.stream('words', value_serde='string')\nlong = s.filter(lambda k, v: len(v) > limit)")
    run(shell, "%%topo other\nbuilder.stream('elsewhere')")
    run(shell, "%%topo words\nlong.group_by_key().count(store='counts')")
    workspace = shell._kstreams_repl_extension.workspace
    session = Recorder()
    shell.user_ns["recorder"], shell.user_ns["thing"] = session, workspace.source("words")
    shell.user_ns["deployed_as"] = program_module.deployed_as
    run(shell, "with deployed_as(\"__builders__['words']\"):\n    recorder.deploy(thing)")
    text = same(session).text
    assert "elsewhere" not in text and text.count("__builders__.setdefault('words'") >= 1


def test_a_function_that_was_replaced_is_the_one_that_runs_again(tmp_path: Path) -> None:
    """`replace` makes no node of its own: without its statement another kernel would go on with the old function."""
    call = 'builder.replace("kept", lambda key, word: checked(word))'
    script = SCRIPT.replace("session.deploy(", f"{call}\nsession.deploy(")
    session = deployed(script, tmp_path)
    program = same(session)
    assert call in program.text
    assert diff(program.run(), session.topology).empty


def test_statements_that_share_the_line_of_the_call_are_taken_and_each_call_has_its_own_topology(shell: Any, tmp_path: Path) -> None:
    """`builder.replace(...); app.edit(builder)` lost its first half: the next kernel would have run the old function."""
    call = "builder.replace('kept', lambda key, word: checked(word))"
    script = SCRIPT.replace("session.deploy(", f"{call}; before = 1; session.deploy(")
    session = deployed(script, tmp_path)
    assert call in same(session).text and diff(same(session).run(), session.topology).empty
    run(shell, "import kstreams_repl as ks\none = ks.StreamsBuilder(); one.stream('one').filter(lambda k, v: True, name='kept')")
    run(shell, "two = ks.StreamsBuilder(); two.stream('two')\nother = type(session)()")
    run(shell, "one.replace('kept', lambda k, v: False); session.deploy(one, 'a'); other.deploy(two, 'b'); two.stream('later')")
    assert "False" in same(shell.user_ns["session"]).text
    text = same(shell.user_ns["other"]).text
    assert "'two'" in text and "later" not in text and text.endswith("= two\n")


def test_what_is_changed_in_place_is_taken(tmp_path: Path) -> None:
    """A lookup table that is filled line by line was kept empty: a detached application, or one that is attached, joined with nothing."""
    script = """
import kstreams_repl as ks
NAMES = {}
NAMES["UA"] = "United"
for code, name in (("AA", "American"), ("DL", "Delta")):
    NAMES[code] = name
NAMES.update(B6="JetBlue")
NAMES |= {"WN": "Southwest"}
del NAMES["DL"]
LIMIT = 1
LIMIT += 2
class Settings: pass
settings = Settings()
settings.suffix = "!"
other = {}
other["x"] = 1
builder = ks.StreamsBuilder()
builder.stream("in").map_values(lambda v: [NAMES, LIMIT, settings.suffix]).to("out", value_serde="json")
session.deploy(builder, "app")
NAMES["ZZ"] = "later"
"""
    program = same(deployed(script, tmp_path))
    assert "other" not in program.text
    names = {"UA": "United", "AA": "American", "B6": "JetBlue", "WN": "Southwest"}
    assert gives(program) == [names, 3, "!"]


def gives(program: Program) -> Any:
    """What its topology makes of one record."""
    with ks.testing.TopologyTestDriver(program.run()) as driver:
        driver.create_input_topic("in", value_serde="string").pipe_input(value="x")
        return driver.create_output_topic("out", value_serde="json").read_value()


def test_the_definition_that_ran_last_counts_wherever_its_cell_is(shell: Any) -> None:
    history = program_module.history  # what the fixture put there
    run(shell, "import kstreams_repl as ks\nbuilder = ks.StreamsBuilder()\nkept = builder.stream('in')")
    history.note("c", "late['x'] = 1", file="cell-c")  # it ran too early, and failed
    for cell, text in (("a", "limit = 30"), ("b", "limit = 60"), ("a", "limit = 31"), ("d", "late = {}"), ("c", "late['x'] = 2")):
        exec(text, shell.user_ns)
        history.note(cell, text, file=f"cell-{cell}")
    run(shell, "kept.map_values(lambda v: [limit, late]).to('out', value_serde='json')\nsession.deploy(builder, 'app')")
    program = same(shell.user_ns["session"])
    assert gives(program) == [31, {"x": 2}]


@pytest.mark.parametrize("expression", ["topology()", "made"])
def test_a_command_records_the_source_of_the_module_it_loads(
    expression: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An edited module was not compared with the version before, because the version's text had nothing of the module in it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"job_{expression.strip('()')}"
    made, hashes = "made = topology()\n" if expression == "made" else "", []
    for method in ("upper", "lower"):
        (tmp_path / f"{name}.py").write_text(JOB.format(method=method) + made)
        linecache.checkcache()
        sys.modules.pop(name, None)
        importlib.invalidate_caches()
        module = importlib.import_module(name)
        thing = module.topology() if expression != "made" else module.made
        with deployed_as(expression, module):
            program = program_of(thing, thing.build())
        assert program.missing == () and method in program.text and "unused" not in program.text
        assert program.run().describe() == thing.build().describe()
        hashes.append(program.hash)
    assert hashes[0] != hashes[1]


JOB = """
import kstreams_repl as ks

unused = open

def change(value):
    return value.{method}()

def topology():
    builder = ks.StreamsBuilder()
    builder.stream("in", value_serde="string").map_values(change).to("out", value_serde="string")
    return builder
"""


def test_a_text_with_a_form_feed_or_a_separator_moves_no_line(tmp_path: Path) -> None:
    """`str.splitlines` counts them as ends of lines; Python's parser does not."""
    script = SCRIPT.replace("import json as js", 'strange = "a\u2028b\x0cc"\nimport json as js')
    session = deployed(script, tmp_path)
    assert diff(same(session).run(), session.topology).empty
