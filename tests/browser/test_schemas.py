"""A topic with schemas in the notebook: nothing is told about its values, and every view shows them decoded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import CHROMIUM
from tests.browser.driving import keep, run_all, write_notebook

pytestmark = [
    pytest.mark.browser,
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.timeout(900),  # on a new machine it fetches the registry
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]

CELLS = [
    "%load_ext kstreams_repl\nfrom decimal import Decimal\nimport kstreams_repl as ks\nfrom kstreams_repl import serdes\n"
    "session = ks.connect(directory='temporary', schema_registry='embedded')",
    "money = {'type': 'bytes', 'logicalType': 'decimal', 'precision': 10, 'scale': 2}\n"
    "record = lambda name, *fields: {'type': 'record', 'name': name, 'fields': [{'name': n, 'type': t} for n, t in fields]}\n"
    "order, total = record('Order', ('item', 'string'), ('price', money)), record('Total', ('spent', money))\n"
    "prices = [('ann', 'lamp', '12.50'), ('ben', 'pen', '1.25'), ('ann', 'chair', '80.00')]\n"
    "rows = [(name, {'item': item, 'price': Decimal(price)}, 1000 + n) for n, (name, item, price) in enumerate(prices)]\n"
    "session.produce('orders', rows, key_serde='string', value_serde=serdes.avro(order))",
    "session.read('orders')",
    "session.sql('SELECT value.item, value.price * 2 AS twice FROM orders ORDER BY 1')",
    "add = lambda name, order, total: {'spent': total['spent'] + order['price']}\n"
    "builder = ks.StreamsBuilder()\n"
    "orders = builder.stream('orders', key_serde='string', name='all')\n"
    "totals = orders.group_by_key().aggregate(lambda: {'spent': Decimal('0.00')}, add, store='totals', value_serde=serdes.avro(total))\n"
    "totals.to_stream().to('sums', value_serde=serdes.avro(total))\n"
    "session.create_topic('sums')\n"
    "session.values(totals)",
    "app = session.deploy(builder, 'shop')\napp.wait(120)\napp",
]


@pytest.mark.slow
def test_records_queries_state_and_panel_show_decoded_values(lab: tuple[str, Path], page: Any) -> None:
    address, folder = lab
    write_notebook(folder / "schemas.ipynb", CELLS)
    run_all(page, address.format("schemas.ipynb"), seconds=600)
    outputs = [output.inner_text() for output in page.locator(".jp-Notebook .jp-CodeCell .jp-OutputArea").all()]
    read, query, peek = outputs[2:5]
    assert '"price": "12.50"' in read and "lamp" in read
    assert [row.split() for row in query.splitlines() if row[:5] in ("chair", "lamp\t", "pen\t2")] == [
        ["chair", "160.00"], ["lamp", "25.00"], ["pen", "2.50"],
    ]  # fmt: skip
    assert '"spent": "92.50"' in peek
    panel = page.locator(".jp-Notebook .ks-panel")
    panel.scroll_into_view_if_needed()
    for shape, shown in (("topic:orders", '"price": "80.00"'), ("store:totals", '"spent": "92.50"'), ("topic:sums", '"spent": "1.25"')):
        panel.locator(f'[data-node="{shape}"]').click()
        panel.locator(".behind td").filter(has_text=shown).first.wait_for(timeout=60_000)
    keep(page, "schemas")
