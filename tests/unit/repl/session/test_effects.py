"""Nothing that has effects runs a second time: attach, rollback, versions, deploy again and export, over generated notebooks.

Each notebook has cells that produce, connect, open and call, with names that the topology also uses. Every effect is a line of a file,
so that one that happens anywhere is counted.
"""

from __future__ import annotations

import linecache
import random
import runpy
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.host.journal.journal_state import JournalState
from kstreams_repl.host.kafka.admin import NewTopicSpec
from kstreams_repl.repl.session.application.starting import journal_lookup, live_owners
from kstreams_repl.repl.session.source import export, source_slice
from kstreams_repl.repl.session.source.cell_history import CellHistory
from kstreams_repl.system.errors import KStreamsError
from kstreams_repl.test_driver.recording import RecordedRecord, Recording
from tests.unit.repl.session.small_cluster import PARTITIONS, SmallCluster, SmallSession

SITE = '''
class Opened:
    def __enter__(self):
        return self
    def __exit__(self, *error):
        return None
    def write(self, text):
        happened(text)

def happened(text):
    with open(FILE, "a") as file:
        file.write(f"{text}\\n")
    return text

def connect():
    happened("connect")
    return SESSION

def opened():
    happened("opened")
    return Opened()
'''

EFFECTS = """
session.produce("qq", [(f"k{j}", j) for j in range(3)])
---
for j in range(2):
    session.produce("qq", [("k", j)])
---
with effects_site.opened() as x:
    x.write("x")
---
try:
    session.produce("qq", [1 / 0])
except ZeroDivisionError as e:
    session.produce("qq", ["e"])
---
if (x := session.produce("qq", ["w"])) is not None:
    row = x
---
rows = [session.produce("qq", [x]) for x in range(2)]
---
def noted(x=session.produce("qq", ["default"])):
    return x
---
class Noted:
    step = session.produce("qq", ["class"])
---
f = lambda x: session.produce("qq", [x])
f(1)
---
def helper(j):
    return effects_site.happened(j)
rows = [helper(j) for j in range(2)]
---
match session.produce("qq", ["m"]), 2:
    case (x, j):
        session.produce("qq", [x])
---
j = 7; session.produce("qq", [j]); del j
---
def remember():
    global step_of
    step_of = session.produce("qq", ["global"])
remember()
---
x = row = session.produce("qq", ["chained"])
---
other = ks.StreamsBuilder()
other.stream("elsewhere").foreach(lambda k, v: effects_site.happened(v))
---
print(session.produce("qq", ["printed"]))
---
[x, *rows] = [session.produce("qq", ["unpacked"]), 2, 3]
---
@(lambda function: (session.produce("qq", ["decorated"]), function)[1])
def f(x):
    return x
---
while not (j := session.produce("qq", ["while"])):
    pass
---
assert session.produce("qq", ["asserted"]) or True
""".strip().split("\n---\n")

BUILDS = """
for j in range(3):
    q = q.map_values(lambda v, j=j: v + j)
---
step = {n}
def add(v, x=1):
    return v + x + step
q = q.map_values(add)
---
names = {{row: x for x, row in enumerate("ab")}}
q = q.map_values(lambda v, names=names: v + names["b"])
---
with contextlib.nullcontext({n}) as x:
    q = q.map_values(lambda v, x=x: v * 2 + x)
---
q = (x := q.filter(lambda k, v: v >= 0)).map_values(lambda v: v + {n})
---
match (1, {n}):
    case (row, x):
        q = q.map_values(lambda v, x=x: v + x)
---
try:
    limits = {{"a": 1}}["b"]
except KeyError as e:
    limits = {n}
q = q.map_values(lambda v: v + limits)
---
class Adder{n}:
    rows = [j for j in range({n})]
    def __init__(self, x):
        self.x = x + len(self.rows)
    def __call__(self, v):
        return v + self.x
q = q.map_values(Adder{n}(2))
---
def longer(stream, rows):
    for j in rows:
        stream = stream.map_values(lambda v, j=j: v + j)
    return stream
q = longer(q, [1, {n}])
---
table = []
table.append({n})
table += [j for j in range(2)]
q = q.map_values(lambda v: v + sum(table))
---
f = lambda v: v + {n}
q = q.map_values(f)
---
q = [q.map_values(lambda v: v + {n}) for x in range(1)][0]
---
def outer():
    x = {n}
    def inner(v):
        nonlocal x
        x = {n}
        return v + x
    return inner
q = q.map_values(outer())
""".strip().split("\n---\n")

MIXED = """
for j in range(2):
    session.produce("qq", [j])
    q = q.map_values(lambda v, j=j: v + j)
---
level = session.produce("qq", [{n}])
q = q.map_values(lambda v: v + len(level))
---
def traced(stream):
    session.produce("qq", ["traced"])
    return stream.map_values(lambda v: v + {n})
q = traced(q)
---
q, row = q.map_values(lambda v: v + {n}), session.produce("qq", ["pair"])
""".strip().split("\n---\n")


class Notebook:
    """A kernel with a notebook; its cells run as IPython runs them."""

    def __init__(self, cluster: SmallCluster, folder: Path, site: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(source_slice, "history", CellHistory())
        self.session = SmallSession(cluster, folder / "session")
        produce: Any = lambda topic, records: site.happened(f"produce {topic} {list(records)!r}")  # noqa: E731
        self.session.produce = produce  # type: ignore[method-assign]
        site.SESSION = self.session  # type: ignore[attr-defined]
        self.space: dict[str, Any] = {"__name__": "__main__", "session": self.session}
        self.cells = 0

    def run(self, text: str) -> None:
        self.cells += 1
        file = f"<cell {self.cells} of kernel {id(self)}>"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        source_slice.history.note(file, text, file=file)
        exec(compile(text, file, "exec"), self.space)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module whose functions have effects; `FILE` has a line for each."""
    path = tmp_path / "effects_site.py"
    path.write_text(SITE)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("effects_site", None)
    import effects_site

    monkeypatch.setitem(sys.modules, "effects_site", effects_site)
    effects_site.FILE = str(tmp_path / "effects")
    (tmp_path / "effects").touch()
    return effects_site


def cells_of(chance: random.Random) -> tuple[list[str], list[str]]:
    """The cells of a notebook up to its deploy, and those of an edit."""
    start = ["import contextlib\nimport kstreams_repl as ks\nimport effects_site", "session = effects_site.connect()"]
    building = [chance.choice(BUILDS if chance.random() < 0.85 else MIXED).format(n=chance.randint(1, 5)) for _ in range(4)]
    cells = ["builder = ks.StreamsBuilder()\nq = builder.stream('in', key_serde='string', value_serde='long')", *building]
    for effect in chance.sample(EFFECTS, 5):
        cells.insert(chance.randint(0, len(cells)), effect)
    end = ["q.to('out', key_serde='string', value_serde='long')", "app = session.deploy(builder, 'app')\napp._core.finish_start()"]
    edit = [chance.choice(EFFECTS), "builder.stream('more', key_serde='string', value_serde='long').filter(lambda k, v: v > 1).to('out')"]
    return [*start, *cells, *end], [*edit, chance.choice(EFFECTS), "app.edit(builder)"]


def results(topology: Any) -> tuple[str, list[Any]]:
    """What a topology is, and what it makes of some records."""
    with ks.testing.TopologyTestDriver(topology) as driver:
        for topic in ("in", "more"):
            if topic in topology.source_topics():
                records = driver.create_input_topic(topic, key_serde="string", value_serde="long")
                for value in (0, 1, 5):
                    records.pipe_input("k", value)
        return str(topology.describe()), driver.create_output_topic("out", value_serde="long").read_values()


def new_cluster(monkeypatch: pytest.MonkeyPatch) -> SmallCluster:
    cluster = SmallCluster()
    cluster.create_topics([NewTopicSpec(name, PARTITIONS) for name in ("in", "more", "out")])
    cluster.create_topics([NewTopicSpec("app-journal", 1)])
    for module, reader in ((journal_lookup, "journal_of"), (live_owners, "_journal")):
        monkeypatch.setattr(module, reader, lambda client, name: cluster.journal or JournalState())
    return cluster


@pytest.mark.parametrize("seeds", [range(40), pytest.param(range(40, 300), marks=[pytest.mark.slow, pytest.mark.timeout(900)])], ids=str)
def test_notebooks_are_attached_rolled_back_and_exported_and_no_effect_happens_again(
    seeds: range, tmp_path: Path, site: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`session.produce` of a cell ran again in every attach whose slice met its comprehension's name: the data were doubled."""
    effects, exported = Path(site.FILE), 0
    recording = Recording([RecordedRecord("in", 0, 0, 1, None, bytes(8))], {"in": 1})
    monkeypatch.setattr(export, "_recorded", lambda admin, topology, records: recording)
    for seed in seeds:
        cells, edit = cells_of(random.Random(seed))
        said = "\n# ---\n".join([*cells, *edit])
        folder = tmp_path / str(seed)
        first = Notebook(new_cluster(monkeypatch), folder, site, monkeypatch)
        for cell in cells:
            first.run(cell)
        app = first.space["app"]
        deployed = results(app.topology)
        for cell in edit:
            first.run(cell)
        edited = results(app.topology)
        app.stop()
        before = effects.read_text()
        program = app._core.history.saved(2).topology_program
        try:
            package = runpy.run_path(str(app.export(folder / "package") / "app.py"))
        except KStreamsError as refused:
            assert "its source text does not define" in refused.message and refused.hint, f"seed {seed}: {refused}"
            assert program.missing
        else:
            exported += 1
            assert results(package["topology"]().build()) == edited, f"seed {seed}:\n{said}\n{program.text}"
        second = Notebook(first.session._cluster, folder, site, monkeypatch)
        again = second.session.attach("app")
        assert results(again.topology) == edited, f"seed {seed}:\n{said}"
        assert [results(version.topology) for version in again.versions] == [deployed, edited], f"seed {seed}:\n{said}"
        again.resume()
        again.rollback()
        assert results(again.topology) == deployed, f"seed {seed}:\n{said}"
        again.stop()
        assert effects.read_text() == before, f"seed {seed}:\n{said}"
    assert exported > 0.5 * len(seeds), "what only builds can be exported"
