"""What functions do, as something comparable: nothing else than what an edit has to see, and all of it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pandas
import pytest

from kstreams_repl.engine.topology.differences.fingerprint import whole_fingerprint


def made(cell: str, name: str = "f") -> Any:
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(cell, space)
    return whole_fingerprint(space[name])


@pytest.mark.parametrize(
    "cell",
    [
        "import functools\n@functools.cache\ndef f(v): return NUMBER",
        "import functools\n@functools.lru_cache(NUMBER)\ndef f(v): return 1",
        "import collections\nD = collections.defaultdict(lambda: NUMBER)\ndef f(v): return D[v]",
        "class Rates(dict):\n  def __missing__(self, key): return NUMBER\nD = Rates()\ndef f(v): return D[v]",
        "import typing\nclass R(typing.NamedTuple):\n  a: int\n  def b(self): return NUMBER\nr = R(1)\ndef f(v): return r.b()",
        "import enum\nclass E(enum.Enum):\n  A = NUMBER\ndef f(v): return E.A.value",
        "import datetime\nclass f:\n  LONG = datetime.timedelta(NUMBER)\n  def process(self, record): return self.LONG",
        "import functools\nclass f:\n  @functools.cached_property\n  def rate(self): return NUMBER",
        "import functools\nclass f:\n  def g(self, a): return a\n  h = functools.partialmethod(g, NUMBER)",
        "class f:\n  class Inner:\n    def g(self): return NUMBER",
        "D = {n: n for n in range(20_000)} | {5: NUMBER}\ndef f(v): return D[v]",
        "import datetime\nD = [datetime.date(2013, 1, NUMBER)] * 20_000\ndef f(v): return D[v]",
        "import pandas\nD = pandas.DataFrame({'a': ['x'] * 20_000 + [str(NUMBER)]})\ndef f(v): return D",
        "A = [[n, n, [1], [2]] * 6 for n in range(5_000)]\ndef z(v): return NUMBER\ndef f(v): return A, z(v)",
    ],
)
def test_what_does_something_else_has_another_fingerprint(cell: str) -> None:
    """Each of these was taken for unchanged: an edit had nothing to do, and the old function went on."""
    assert made(cell.replace("NUMBER", "1")) != made(cell.replace("NUMBER", "2"))
    assert made(cell.replace("NUMBER", "1")) == made(cell.replace("NUMBER", "1"))


@pytest.mark.parametrize(
    "cell",
    [
        "import abc, threading\nclass f(abc.ABC):\n  X = object()\n  L = threading.Lock()\n  @abc.abstractmethod\n  def w(self): return 1",
        "import dataclasses, typing\n@dataclasses.dataclass(slots=True)\nclass f:\n  a: int = 1\n  b: typing.ClassVar[int] = 2",
        "import collections\nc, d = collections.Counter('aab'), collections.OrderedDict(a=1)\ndef f(v): return c, d",
        "S = {str(n) for n in range(1000)}\ndef f(v): return S",
        "D = [lambda: 1] * 20_000\ndef f(v): return D",
    ],
)
def test_a_cell_that_runs_again_has_the_same_fingerprint(cell: str) -> None:
    assert made(cell) == made(cell)


def test_a_helper_of_a_module_of_the_user_s_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`helpers.scale(v)` was not, only `from helpers import scale`."""
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "helpers_of_a_notebook.py"
    cell = "import helpers_of_a_notebook as h\ndef f(v): return h.scale(v)\ndef g(v): return h.other(v)"
    found = []
    try:
        for number in (1, 22):
            file.write_text(f"def scale(v): return v * {number}\ndef other(v): return v\n")
            importlib.invalidate_caches()
            sys.modules.pop(file.stem, None)
            found.append((made(cell), made(cell, "g")))
    finally:
        sys.modules.pop(file.stem, None)
    assert found[0][0] != found[1][0] and found[0][1] == found[1][1]


def test_helpers_that_call_each_other_are_looked_into_once() -> None:
    """Every way through them was taken; when there were too many, what came after them was not compared."""
    names = [f"h{number}" for number in range(12)]
    cell = "".join(f"def {one}(v): return {' + '.join(f'{other}(v)' for other in names if other != one)}\n" for one in names)
    cell += "z = NUMBER\ndef f(v): return h0(v), z"
    one, other = made(cell.replace("NUMBER", "1")), made(cell.replace("NUMBER", "2"))
    assert one != other and len(repr(one)) < 500_000
    assert one == made(cell.replace("NUMBER", "1"))


def test_a_large_dataframe_is_not_kept_with_what_is_compared() -> None:
    """Every version of every node that reads it held a copy."""
    frame = pandas.DataFrame({"a": range(100_000), "b": [str(n) for n in range(100_000)]})
    assert len(repr(whole_fingerprint(lambda value: frame))) < 20_000
