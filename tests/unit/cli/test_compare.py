"""`kstreams compare`: exit status and output. The comparison is a real one, on records at hand instead of an application's."""

from __future__ import annotations

import contextlib
import json
import sys
import types
from typing import Any

import pytest
from click.testing import CliRunner, Result

import kstreams_repl
from kstreams_repl.cli import compare
from kstreams_repl.repl.session.views.compare.comparison import Comparison
from tests.unit.repl.session.compare.mistakes import MISTAKES, orders
from tests.unit.repl.session.compare.shop import CONFIG, compared
from tests.unit.repl.session.compare.test_noise import NOISY

ASKED: list[dict[str, Any]] = []


class Attached:
    """An application of which only the comparison is asked."""

    def __init__(self, name: str) -> None:
        self.name = name

    def compare(self, topology: Any, *, samples: int, **options: Any) -> Comparison:
        ASKED.append({"name": self.name, **options})
        return compared(sys.modules["shop_jobs"].runs, topology, samples=samples)


@pytest.fixture(autouse=True)
def _jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    build, _ = MISTAKES["wrong_bound"]
    jobs: Any = types.ModuleType("shop_jobs")
    jobs.runs, jobs.same, jobs.wrong = build(False), build(False), build(True)
    monkeypatch.setitem(sys.modules, "shop_jobs", jobs)
    session = types.SimpleNamespace(attach=Attached)
    monkeypatch.setattr(kstreams_repl, "connect", lambda *args, **more: contextlib.nullcontext(session))
    ASKED.clear()


def invoked(*arguments: str) -> Result:
    return CliRunner().invoke(compare.main, [*arguments, "--broker", "localhost:1"], standalone_mode=False)


def test_no_difference_is_0_and_a_difference_2() -> None:
    same = invoked("shop_jobs:same", "--against", "orders", "--records", "1000")
    assert same.return_value == 0 and "no differences" in same.output, same
    assert ASKED == [{"name": "orders", "records": 1000, "start": None, "end": None, "calls": False}]
    wrong = invoked("shop_jobs:wrong", "--fail-on", "changed", "--samples", "3")
    assert wrong.return_value == 2 and "first difference: node large" in wrong.output, wrong
    assert ASKED[-1]["name"] == "wrong" and wrong.output.count("only before") >= 4
    assert invoked("shop_jobs:wrong", "--fail-on", "never").return_value == 0


def test_json_has_all_of_it() -> None:
    told = json.loads(invoked("shop_jobs:wrong", "--json").output)
    assert told["equal"] is False and told["first"]["node"] == "large" and told["records"] == 400
    assert {row["name"]: row["only_before"] for row in told["rows"]}["out"] == len(told["samples"]) == 19
    assert all(sample["record"].startswith("orders-") for sample in told["samples"])


def test_what_is_all_noise_could_not_be_compared() -> None:
    jobs: Any = sys.modules["shop_jobs"]
    builder = kstreams_repl.StreamsBuilder()
    orders(builder).map_values(NOISY["uuid"], name="noise").to("out", name="sink")
    jobs.runs = jobs.same = builder.build(CONFIG)
    told = invoked("shop_jobs:same")
    assert told.return_value == 1 and "nothing can be compared" in told.output


def test_a_wrong_choice_is_refused() -> None:
    result = CliRunner().invoke(compare.main, ["shop_jobs:same", "--records", "0"])
    assert result.exit_code == 2 and "--records" in result.output
