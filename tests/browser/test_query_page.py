"""The page of a query server in a real browser: numbers move, a click on a store shows rows, nothing comes from elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from tests.browser.conftest import CHROMIUM
from tests.browser.driving import keep

pytestmark = [
    pytest.mark.browser, pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(300),
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]  # fmt: skip


@pytest.mark.slow
def test_the_page_shows_the_running_application_and_its_stores(chromium: Any, tmp_path: Path) -> None:
    with ks.connect(directory=tmp_path / "session") as session:
        session.produce("orders", [(f"k{n % 50}", {"amount": n}) for n in range(5000)])
        builder = ks.StreamsBuilder()
        orders = builder.stream("orders", key_serde="string", value_serde="json")
        orders.filter(lambda key, value: value["amount"] > 10, name="large").group_by_key().count(store="counts")
        app = session.deploy(builder, "shop")
        assert app.wait(120)
        server = app.serve()
        token = json.loads(Path(server.token_path).read_text())["look"]
        context = chromium.new_context(http_credentials={"username": "look", "password": token}, viewport={"width": 1300, "height": 800})
        try:
            page = context.new_page()
            asked: list[str] = []
            broken: list[str] = []
            page.on("request", lambda request: asked.append(request.url))
            page.on("pageerror", lambda error: broken.append(str(error)))
            page.goto(server.url + "/")
            page.get_by_text("1 instance, 5,000 records").wait_for(timeout=60_000)
            session.produce("orders", [(f"k{n % 50}", {"amount": n}) for n in range(3000)])
            page.get_by_text("8,000 in, 7,978 out").wait_for(timeout=60_000)
            assert page.get_by_role("button", name="pause").count() == 0, "it only shows"
            page.locator('[data-node="store:counts"]').first.click()
            page.get_by_role("cell", name="k17", exact=True).wait_for(timeout=60_000)
            keep(page, "query_page")
            page.get_by_label("keys that begin with").fill("k3")
            page.get_by_text("11 rows", exact=True).wait_for(timeout=60_000)
            page.get_by_label("keys that begin with").fill("")
            page.get_by_role("button", name="next").click()
            page.get_by_text("page 2, 20 rows", exact=True).wait_for(timeout=60_000)
            generated = page.locator(".canvas text", has_text="KSTREAM-SOURCE-0000000000")
            assert generated.count() == 0
            page.get_by_role("button", name="names").click()
            generated.first.wait_for(timeout=60_000)
            page.emulate_media(color_scheme="dark")
            keep(page, "query_page_dark")
            page.emulate_media(color_scheme="light")
            page.goto(server.url + "/docs")
            page.get_by_role("heading", name="GET /state/stores/{store}/{key}").wait_for()
            keep(page, "query_page_docs")
            assert asked and {url.startswith(server.url) for url in asked} == {True}
            assert broken == []
        finally:
            context.close()
    with pytest.raises(Exception, match="ERR_CONNECTION_REFUSED"):
        page = chromium.new_page()
        try:
            page.goto(server.url)
        finally:
            page.close()
