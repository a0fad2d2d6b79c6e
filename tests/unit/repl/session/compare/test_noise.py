"""What differs from run to run is no difference; a mistake beside it is one."""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.repl.session.views.compare.answers import Answers
from kstreams_repl.repl.session.views.compare.compare import compare
from kstreams_repl.repl.session.views.compare.inputs import Inputs
from kstreams_repl.repl.session.views.compare.side import Base, Side, SideTopology
from kstreams_repl.repl.session.views.compare.topologies import batches_of
from kstreams_repl.test_driver.virtual_calls import MemoryResultLog
from tests.unit.repl.session.compare.mistakes import by_customer, orders
from tests.unit.repl.session.compare.shop import CONFIG, compared, shop

Order = dict[str, Any]


class Tag:
    """Hashed by its address: the order of a set of them is another one each time."""

    def __init__(self, name: str) -> None:
        self.name = name


def _tags(order: Order) -> list[str]:
    return [tag.name for tag in {Tag(f"{order['id']}-{number}") for number in range(6)}]


NOISY: dict[str, Callable[[Order], object]] = {
    "random": lambda order: random.random(),  # noqa: S311
    "now": lambda order: time.time_ns(),
    "order of a set": _tags,
    "uuid": lambda order: str(uuid.uuid4()),
}


def built(noise: Callable[[Order], object], *, step: int = 1, after: bool = False) -> Topology:
    """Return a topology that puts noise into the value of an output and the rows of a store."""
    builder = ks.StreamsBuilder()
    change = (
        (lambda order: {"noise": noise(order), **order}) if not after else (lambda order: {"noise": noise(order)} | dict(order))
    )
    stream = orders(builder).map_values(change, name="noisy")
    totals = (
        by_customer(stream)
        .group_by_key()
        .aggregate(
            lambda: {"last": None, "total": 0},
            lambda key, order, total: {"last": order["noise"], "total": total["total"] + step * order["amount"]},
            store="totals",
            name="total",
        )
    )
    totals.to_stream(name="changes").to("out", name="sink")
    return builder.build(CONFIG)


@pytest.mark.parametrize("name", NOISY)
def test_noise_is_set_apart(name: str) -> None:
    found = compared(built(NOISY[name]), built(NOISY[name], after=True))
    assert found.equal and found.first is None, found.text
    field = "value.last[]" if name == "order of a set" else "value.last"
    if name != "random":  # both sides draw the same numbers
        assert {(each.kind, each.name, each.fields) for each in found.noise} == {
            ("output", "out", (field,)), ("store", "totals", (field,)),
        }, found.text  # fmt: skip
        assert sum(each.noise for each in found.rows) > 50
        assert f"noise in output out: {field}" in found.text


@pytest.mark.parametrize("name", NOISY)
def test_a_mistake_beside_noise_is_found(name: str) -> None:
    found = compared(built(NOISY[name]), built(NOISY[name], step=2))
    assert found.first is not None and found.first.node == "total", found.text
    assert all(each.fields == ("value.total",) for each in found.samples), found.samples
    assert found.noise and all(each.fields[0].startswith("value.last") for each in found.noise)


def test_a_rare_coin_falls_the_same_way_on_both_sides() -> None:
    def build() -> Topology:
        builder = ks.StreamsBuilder()
        orders(builder).filter(lambda key, order: random.random() > 0.01, name="sampled").to("out", name="sink")  # noqa: S311
        return builder.build(CONFIG)

    state = random.getstate()
    found = compared(build(), build())
    assert found.equal and found.rows[0].equal > 380, found.text
    assert random.getstate() == state


def test_a_mistake_behind_a_coin_is_found() -> None:
    """Each run of the unchanged topology drops other records; the first node is found at one that all have."""

    def build(factor: int) -> Topology:
        builder = ks.StreamsBuilder()
        stream = orders(builder).filter(lambda key, order: random.random() > 0.5, name="sampled")  # noqa: S311
        by_customer(stream).map_values(lambda order: order["amount"] * factor, name="times").to("out", name="sink")
        return builder.build(CONFIG)

    found = compared(build(1), build(2))
    assert found.first is not None and found.first.node == "times", found.text
    assert found.noise[0].fields == ("(rows)",)


def test_rows_that_come_by_chance_are_noise() -> None:
    def build() -> Topology:
        builder = ks.StreamsBuilder()
        stream = orders(builder)
        stream.filter(lambda key, order: uuid.uuid4().int % 2, name="sampled").to("out", name="sink")
        by_customer(stream).group_by_key().count(store="counts", name="count")
        return builder.build(CONFIG)

    found = compared(build(), build())
    assert found.equal, found.text
    assert [each.fields for each in found.noise] == [("(rows)",)]


def test_an_application_that_is_all_noise_says_so() -> None:
    def build() -> Topology:
        builder = ks.StreamsBuilder()
        orders(builder).map_values(lambda order: str(uuid.uuid4()), name="noise").to("out", name="sink")
        return builder.build(CONFIG)

    found = compared(build(), build())
    assert found.equal and found.all_noise
    assert "nothing can be compared" in found.text and "nothing can be compared" in found.table().note


@pytest.fixture
def service() -> Iterator[tuple[str, list[str]]]:
    """Serve another number at each call; the list has the paths."""
    asked: list[str] = []
    numbers = count()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            body = b"%d" % next(numbers)
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    thread.join()
    server.server_close()


def _asking(url: str, *, step: int = 1, vat: int = 0) -> Topology:
    from urllib.request import urlopen

    def price(order: Order) -> Order:
        with urlopen(f"{url}/{order['id']}") as answer:  # noqa: S310
            return {**order, "price": int(answer.read()) + vat}

    builder = ks.StreamsBuilder()
    stream = orders(builder).filter(lambda key, order: order["amount"] > 15, name="large").map_values_async(price, name="price")
    priced = stream.map_values(lambda order: [order["price"], order["amount"] * step], name="pair")
    priced.to("out", name="sink")
    return builder.build(CONFIG)


def test_a_service_is_asked_once_for_both_sides(service: tuple[str, list[str]]) -> None:
    url, asked = service
    found = compared(_asking(url), _asking(url), calls=True)
    assert found.equal and found.noise == (), found.text
    assert len(asked) == len(set(asked)) == found.rows[0].equal > 50


def test_a_mistake_behind_a_call_is_found_without_another_call(service: tuple[str, list[str]]) -> None:
    url, asked = service
    found = compared(_asking(url), _asking(url, step=2), calls=True)
    assert found.first is not None and found.first.node == "pair", found.text
    assert len(asked) == len(set(asked))


def test_an_edited_call_asks_again(service: tuple[str, list[str]]) -> None:
    url, asked = service
    found = compared(_asking(url), _asking(url, vat=1), calls=True)
    assert found.first is not None and found.first.node == "price", found.text
    assert len(asked) == 2 * len(set(asked))


def test_calls_are_refused_unless_they_are_allowed(service: tuple[str, list[str]]) -> None:
    url, asked = service
    with pytest.raises(ks.KStreamsError, match="asynchronous node 'price' would be called"):
        compared(_asking(url), _asking(url))
    assert asked == []


def _durable(url: str, *, step: int = 1) -> Topology:
    from urllib.request import urlopen

    def price(order: Order) -> Order:
        with urlopen(f"{url}/{order['id']}") as answer:  # noqa: S310
            return {**order, "price": int(answer.read())}

    builder = ks.StreamsBuilder()
    stream = orders(builder).filter(lambda key, order: order["amount"] > 15, name="large")
    priced = stream.map_values_async(price, name="price", durable=True)
    priced.map_values(lambda order: [order["price"], order["amount"] * step], name="pair").to("out", name="sink")
    return builder.build(CONFIG)


def test_a_durable_node_takes_the_recorded_answers_and_calls_nobody(service: tuple[str, list[str]]) -> None:
    url, asked = service
    log = MemoryResultLog()
    config = StreamsConfig({**CONFIG, "application.id": "test"})
    inputs = Inputs(batches_of(shop(), _durable(url)))

    def given(topology: Topology, answers: Answers) -> SideTopology:
        return SideTopology(topology, "test", config, shop().topics, answers.of_a_side(), log)

    with Side(given(_durable(url), Answers(calls=True)), Base(), inputs) as recording:  # the application, once
        made = [sent for _, each in recording.run(len(inputs)) for sent in each if sent.topic == "out"]
    calls = len(asked)
    assert calls == len(made) > 50

    answers = Answers(calls=False)
    with answers.asked_by(_durable(url)):
        found = compare(
            lambda: (given(_durable(url), answers), given(_durable(url, step=2), answers)), Base(), inputs, title="the beginning"
        )
    assert found.first is not None and found.first.node == "pair" and len(asked) == calls, found.text

    rows = next(iter(log.rows.values()))
    del rows[len(rows) // 2 :]
    missing = Answers(calls=False)
    with pytest.raises(ks.KStreamsError, match="asynchronous node 'price' would be called"), missing.asked_by(_durable(url)):
        compare(lambda: (given(_durable(url), missing), given(_durable(url), missing)), Base(), inputs, title="the beginning")
    assert len(asked) == calls
