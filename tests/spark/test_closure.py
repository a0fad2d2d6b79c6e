"""What travels to the workers: user functions by value, packages by reference, nothing that cannot be sent."""

from __future__ import annotations

import importlib
import pickle
import sys
import threading
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kstreams_repl import StreamsBuilder
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.runtime.task import TaskSpec
from kstreams_repl.engine.topology.nodes import ProcessorNode
from kstreams_repl.host.instance.application_plan import ApplicationPlan
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.host.spark.planning.plan_serialization import Shipment, _by_value, pack, unpack
from kstreams_repl.repl.session import Session
from kstreams_repl.system.errors import DeployError
from kstreams_repl.system.types import TaskId, TopicPartition


def plan_of(mapper: object) -> ApplicationPlan:
    builder = StreamsBuilder()
    builder.stream("in").map_values(mapper, name="shape").to("out")  # type: ignore[arg-type]
    config = StreamsConfig({"application.id": "a", "bootstrap.servers": "b:1", "sasl.password": "hunter2"})
    sub = builder.build().subtopologies()[0]
    source = sub.nodes[0].name
    spec = TaskSpec("a", sub, TaskId(0, 0), {TopicPartition("in", 0): source}, config)
    return ApplicationPlan("a", 1, config, ClientSettings("b:1"), ((spec,),), "state", "control")


def mapper_of(plan: ApplicationPlan) -> object:
    return next(node.operator.mapper for node in plan.assignment[0][0].subtopology.nodes if isinstance(node, ProcessorNode))


def test_local_function_travels_with_what_it_closes_over() -> None:
    factor = 3
    sent = unpack(pack(plan_of(lambda value: value * factor)))
    assert mapper_of(sent)(14) == 42  # type: ignore[operator]
    assert sent.transactional_id(0) == "a-0"


def test_function_of_the_users_own_module_travels_by_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_functions.py").write_text("def shout(value):\n    return value.upper()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import my_functions  # type: ignore[import-not-found]

    shipment = pack(plan_of(my_functions.shout))
    del sys.modules["my_functions"]
    (tmp_path / "my_functions.py").unlink()
    assert mapper_of(unpack(shipment))("a") == "A"  # type: ignore[operator]


def test_same_plan_has_the_same_digest_and_another_function_another() -> None:
    def one(value: int) -> int:
        return value + 1

    def two(value: int) -> int:
        return value + 2

    assert pack(plan_of(one)).digest != pack(plan_of(two)).digest


CALLS = {
    "by the module": "import my_helpers\ndef call(value): return my_helpers.shout(value)",
    "by its name": "from my_helpers import shout\ndef call(value): return shout(value)",
    "in a class": "import my_helpers\nclass Call:\n    def __call__(self, value): return my_helpers.shout(value)\ncall = Call()",
}


@pytest.mark.parametrize("how", CALLS)
def test_a_module_that_a_function_calls_travels_by_value(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that had imported it went on with the module of then after an edit; one on another host had none."""
    (tmp_path / "my_helpers.py").write_text("import deeper\ndef shout(value):\n    return deeper.loud(value)\n")
    (tmp_path / "deeper.py").write_text("def loud(value):\n    return value.upper()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(CALLS[how], space)
    shipment = pack(plan_of(space["call"]))
    for name in ("my_helpers", "deeper"):
        (tmp_path / f"{name}.py").unlink()
        del sys.modules[name]
    assert mapper_of(unpack(shipment))("a") == "A"  # type: ignore[operator]


def test_a_module_that_holds_what_cannot_be_sent_is_imported_by_the_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_locked.py").write_text("import threading\nLOCK = threading.Lock()\ndef shout(value):\n    return value.upper()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    space: dict[str, Any] = {"__name__": "__main__"}
    exec("import my_locked\ndef call(value): return my_locked.shout(value)", space)
    shipment = pack(plan_of(space["call"]))
    del sys.modules["my_locked"]
    assert mapper_of(unpack(shipment))("a") == "A"  # type: ignore[operator]
    assert sys.modules.pop("my_locked") is not None


def test_two_applications_may_be_deployed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the one had registered was taken out by the other: it could not be sent, or went by reference."""
    (tmp_path / "my_both.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    import my_both  # type: ignore[import-not-found]

    def other() -> None:
        with _by_value({"my_both": my_both}):
            pass

    second = threading.Thread(target=other)
    with _by_value({"my_both": my_both}):
        second.start()
        second.join(0.2)
    second.join()
    del sys.modules["my_both"]


def add(value: int, number: Any) -> Any:
    return number


class Wrapped:
    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __call__(self, value: Any) -> Any:
        return self.inner


@pytest.mark.parametrize("kind", ["closure", "global", "helper", "partial", "attribute", "generator", "file", "session"])
def test_what_cannot_be_sent_is_told_with_its_name_before_anything_starts(kind: str, tmp_path: Path) -> None:
    lock = threading.Lock()
    space: dict[str, Any] = {"__name__": "__main__", "lock": lock}
    exec("def direct(value): return lock\ndef helper(value): return direct(value)", space)
    numbers = (number for number in range(3))
    session = Session(ClientSettings("b:1"))
    with (tmp_path / "out").open("w") as out:
        given: dict[str, tuple[object, str, str]] = {
            "closure": (lambda value: lock, "lock", "lock"),
            "global": (space["direct"], "lock", "lock"),
            "helper": (space["helper"], "lock", "lock"),
            "partial": (partial(add, number=lock), "number", "lock"),
            "attribute": (Wrapped([lock]), "inner", "lock"),
            "generator": (lambda value: next(numbers), "numbers", "generator"),
            "file": (lambda value: print(value, file=out), "out", "TextIOWrapper"),
            "session": (lambda value: session.sql(value), "session", "Session"),
        }
        function, variable, thing = given[kind]
        with pytest.raises(DeployError, match="cannot be sent") as told:
            pack(plan_of(function))
    assert told.value.__cause__ is not None and told.value.node == "shape"
    assert told.value.variable == variable and f"variable {variable!r} holds a {thing}" in told.value.message


def test_only_a_plan_is_unpacked() -> None:
    shipment = pack(plan_of(str))
    assert isinstance(pickle.loads(shipment.content), ApplicationPlan)
    assert not isinstance(shipment.content, ModuleType)


def test_a_worker_that_stays_imports_a_module_again_that_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An edit that came with another `my_rates.py` ran on with the one that the worker had imported for the version before."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def shipped(number: int) -> Shipment:
        """By a driver that has just imported the file."""
        (tmp_path / "my_rates.py").write_text(
            f"import threading\nLOCK = threading.Lock()  # so it is imported there\ndef rate(value):\n    return {number}\n"
        )
        importlib.invalidate_caches()
        sys.modules.pop("my_rates", None)
        space: dict[str, object] = {"__name__": "__main__"}
        exec("import my_rates\ndef mapper(value): return my_rates.rate(value)", space)
        return pack(plan_of(space["mapper"]))

    try:
        first = shipped(1)
        del sys.modules["my_rates"]
        assert mapper_of(unpack(first))(0) == 1  # type: ignore[operator]
        of_the_worker = sys.modules["my_rates"]
        second = shipped(22)
        sys.modules["my_rates"] = of_the_worker
        assert mapper_of(unpack(second))(0) == 22  # type: ignore[operator]
        again = sys.modules["my_rates"]
        unpack(second)
        assert sys.modules["my_rates"] is again
    finally:
        sys.modules.pop("my_rates", None)
