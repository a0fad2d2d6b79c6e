"""The picture as a place to move about in, by itself in a real browser: zoom, drag, map, drawer, folding, and a kernel that is gone."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from typing import Any

import pytest

from kstreams_repl.engine.dsl import StreamsBuilder
from kstreams_repl.pictures import Mark, Picture, picture_of, svg_of
from kstreams_repl.pictures.graph.arrange import room_for
from kstreams_repl.pictures.graph.live_marks import link_widths, mark_lines
from kstreams_repl.pictures.graph.mimebundle import mimebundle
from kstreams_repl.pictures.graph.picture import Kind
from kstreams_repl.pictures.graph.view import View, simplified, summary_of
from tests.browser.conftest import CHROMIUM
from tests.browser.driving import ARTEFACTS, keep
from tests.browser.test_picture import large, panel, state_with  # noqa: F401 - a fixture

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")]

LAB = {
    "light": "--jp-layout-color0:#fff;--jp-layout-color1:#fff;--jp-layout-color2:#eee;--jp-ui-font-color1:rgba(0,0,0,.87);"
    "--jp-ui-font-color2:rgba(0,0,0,.54);--jp-border-color1:#bdbdbd;--jp-border-color2:#e0e0e0;background:#fff",
    "dark": "--jp-layout-color0:#111;--jp-layout-color1:#212121;--jp-layout-color2:#424242;--jp-ui-font-color1:#fff;"
    "--jp-ui-font-color2:rgba(255,255,255,.7);--jp-border-color1:#616161;--jp-border-color2:#424242;background:#111;color:#fff",
}
"""What JupyterLab's themes set."""


def shop() -> Picture:
    """Orders and customers, enriched, re-keyed, counted: 21 nodes, 3 stores, two repartitionings, mostly generated names."""
    builder = StreamsBuilder()
    customers = builder.table("customers", store="customers")
    orders = builder.stream("orders").filter(lambda key, order: True, name="paid")
    rich = orders.select_key(lambda key, order: order).join(customers, lambda order, customer: order, name="rich")
    rich.group_by(lambda key, order: order).count(store="by-country").to_stream()
    totals = rich.group_by_key().aggregate(lambda: 0, lambda key, order, total: total, store="totals")
    totals.filter(lambda key, total: True, name="large").to_stream().to("large-totals")
    rich.filter_not(lambda key, order: True).to("rejected")
    picture = picture_of(builder.build(), title="shop", state="running")
    assert sum(shape.kind in (Kind.SOURCE, Kind.PROCESSOR, Kind.SINK) for shape in picture.shapes) == 21, picture.summary
    rate = {Kind.SOURCE: 35_000.0, Kind.PROCESSOR: 2_400.0, Kind.SINK: 12.0}
    found = {
        shape.id: Mark("running", (f"{123_456:,} records", f"{rate[shape.kind]:,.0f} records/s"), rate[shape.kind], 7)
        for shape in picture.shapes
        if shape.kind in rate
    }
    found["node:large"] = Mark("failed", ("ZeroDivisionError: division by zero in large",), 0.0)
    found["node:paid"] = replace(found["node:paid"], state="stale")
    found |= {shape.id: Mark(None, ("2,000 rows",)) for shape in picture.shapes if shape.kind is Kind.STORE}
    return replace(picture, marks=found)


def shown(picture: Picture, view: View | None = None, **more: Any) -> dict[str, Any]:
    """As `LivePicture` sends it."""
    drawn, view = simplified(picture, view), view or View()
    room = room_for(drawn)
    curve = [[100.0 + second, 30_000.0 + 400 * (second * 7 % 40), second % 9] for second in range(60)]
    return state_with(
        drawn, svg=str(svg_of(drawn, room=room, live=True)), marks=mark_lines(drawn, room), flows=link_widths(drawn),
        view=summary_of(picture, view),
        name="shop", note="Application('shop', running, 2 instances, 202,000 records, lag 14)", history=curve, **more,
    )  # fmt: skip


def sent(panel: Any, action: str) -> list[dict[str, Any]]:  # noqa: F811
    found: list[dict[str, Any]] = panel.evaluate("action => window.sent.filter(message => message.do === action)", action)
    return found


def in_view(panel: Any, selector: str) -> bool:  # noqa: F811
    inside: bool = panel.evaluate(
        """selector => {
            const box = document.querySelector(selector).getBoundingClientRect();
            const inside = box.top >= 0 && box.left >= 0 && box.bottom <= innerHeight + 1 && box.right <= innerWidth + 1;
            return box.width > 0 && box.height > 0 && inside;
        }""",
        selector,
    )
    return inside


ROWS = "".join(f"<tr><td>{number}</td><td>a row of the store</td></tr>" for number in range(200))


def test_what_is_behind_a_shape_is_in_view_beside_a_big_picture(panel: Any) -> None:  # noqa: F811
    """Rows and plans were below the fold, and plans were applied unread."""
    panel.set_viewport_size({"width": 1300, "height": 800})
    panel.evaluate("state => window.show(state)", shown(shop(), View(repartitions=True)))
    panel.evaluate("() => { const pad = document.createElement('div'); pad.style.height = '1500px'; document.body.append(pad); }")
    assert panel.locator(".drawer").is_hidden()
    shape = panel.locator('[data-node="store:totals"]')
    shape.click()
    answer = {"selected": "store:totals", "detail": f"<table>{ROWS}</table>"}
    panel.evaluate("state => window.model.set(state)", answer)
    assert in_view(panel, ".drawer"), "the whole drawer"
    assert in_view(panel, '[data-node="store:totals"]'), "and the shape"
    assert panel.locator(".drawer .heading").inner_text() == "store totals"
    box = panel.locator(".behind").evaluate("place => [place.scrollHeight, place.clientHeight]")
    assert box[0] > 3 * box[1] > 300, "it scrolls by itself"
    # another shape: from its beginning
    panel.locator(".behind").evaluate("place => place.scrollTo(0, 999)")
    panel.locator('[data-node="node:large"]').click()
    panel.evaluate("state => window.model.set(state)", {**answer, "selected": "node:large"})
    assert panel.locator(".behind").evaluate("place => place.scrollTop") == 0
    panel.keyboard.press("Escape")
    assert panel.locator(".drawer").is_hidden() and sent(panel, "select")[-1]["shape"] == ""
    assert panel.evaluate("() => document.activeElement.dataset.node") == "node:large"


def test_apply_is_beside_its_plan_and_not_for_one_that_is_outdated(panel: Any) -> None:  # noqa: F811
    panel.evaluate("state => window.show(state)", shown(shop()))
    apply = panel.locator("button.apply")
    assert apply.is_hidden()
    panel.evaluate("state => window.model.set(state)", {"planned": True, "detail": f"<table>{ROWS}</table>"})
    assert in_view(panel, "button.apply") and in_view(panel, ".behind table tr") and apply.is_enabled()
    assert panel.evaluate("() => document.querySelector('button.apply').closest('.drawer') !== null")
    panel.evaluate("() => window.model.set({ outdated: true })")
    assert apply.is_disabled() and "press edit" in panel.locator(".outdated").inner_text()
    panel.evaluate("() => window.model.set({ outdated: false })")
    apply.click()
    assert len(sent(panel, "apply")) == 1 and panel.locator(".outdated").is_hidden()
    for action in ("compare", "fork"):
        panel.locator(f"button.{action}").click()
        assert len(sent(panel, action)) == 1
    panel.evaluate("() => window.model.set({ planned: false })")
    assert all(panel.locator(f"button.{action}").is_hidden() for action in ("apply", "compare", "fork"))


def test_a_picture_is_zoomed_dragged_fitted_and_has_a_map(panel: Any) -> None:  # noqa: F811
    panel.set_viewport_size({"width": 900, "height": 700})
    panel.evaluate("state => window.show(state)", shown(shop(), View(repartitions=True)))

    def look() -> tuple[float, float, float]:
        found = panel.evaluate(
            """() => {
                const canvas = document.querySelector('.canvas');
                return [+document.querySelector('.ks-panel').dataset.scale, canvas.scrollLeft, canvas.scrollTop];
            }"""
        )
        return found[0], found[1], found[2]

    assert look()[0] >= 0.7, "large enough to read"
    panel.locator("button.fit").click()
    hidden = panel.locator(".canvas").evaluate("one => [one.scrollWidth - one.clientWidth, one.scrollHeight - one.clientHeight]")
    assert max(hidden) <= 1
    assert panel.locator("button.scale").inner_text() == f"{round(look()[0] * 100)} %"
    # Ctrl and wheel: what is under the pointer stays there
    panel.locator("button.scale").click()
    shape = panel.locator('[data-node="node:rich"]')
    shape.scroll_into_view_if_needed()
    before = shape.bounding_box()
    panel.mouse.move(before["x"] + before["width"] / 2, before["y"] + before["height"] / 2)
    panel.keyboard.down("Control")
    panel.mouse.wheel(0, -150)
    panel.keyboard.up("Control")
    panel.wait_for_function("() => +document.querySelector('.ks-panel').dataset.scale > 1.2")
    after = shape.bounding_box()
    assert abs(after["x"] + after["width"] / 2 - before["x"] - before["width"] / 2) < 20
    # drag: it moves, and chooses nothing
    start = look()
    panel.mouse.down()
    panel.mouse.move(before["x"] - 60, before["y"] - 40, steps=5)
    panel.mouse.up()
    moved = look()
    assert moved[1] > start[1] and moved[2] > start[2] and sent(panel, "select") == []
    # the map: a rectangle for what is seen; a click goes there
    assert panel.locator(".map").is_visible()
    frame = [float(panel.locator(".map .seen").get_attribute(name)) for name in ("x", "y")]
    assert frame == pytest.approx([moved[1] / moved[0], moved[2] / moved[0]], abs=1)
    box = panel.locator(".map").bounding_box()
    panel.mouse.click(box["x"] + 3, box["y"] + 3)
    assert look()[1:] == (0, 0)
    panel.locator("button.map-toggle").click()
    assert panel.locator(".map").is_hidden()
    # by keyboard
    shape.focus()
    panel.keyboard.press("0")
    assert look()[0] == 1
    panel.keyboard.press("-")
    assert look()[0] == 0.8
    panel.evaluate("state => window.show(state)", shown(simple()))
    assert panel.locator(".map").is_hidden() and panel.locator("button.map-toggle").is_hidden(), "few nodes"


def simple() -> Picture:
    builder = StreamsBuilder()
    builder.stream("in").map_values(lambda value: value).to("out")
    return picture_of(builder.build(), title="simple", state="running")


def test_folding_and_names_are_asked_of_the_one_layout(panel: Any) -> None:  # noqa: F811
    picture = shop()
    panel.evaluate("state => window.show(state)", shown(picture))
    drawn = panel.evaluate("() => document.querySelector('.canvas svg').textContent")
    texts = panel.evaluate("() => [...document.querySelectorAll('.canvas svg text')].map(text => text.textContent)")
    assert "sink" in texts and not any(re.search(r"\d{10}", text) for text in texts)
    assert "▶ running" not in drawn, "the header says it"
    assert "✎ stale" in drawn and "✖ failed" in drawn
    assert panel.locator(".chip").inner_text() == "▶ running"
    assert panel.locator(".canvas .repartition").count() == 2
    panel.locator("button.names").click()
    panel.locator("button.repartitioning").click()
    assert [{key: message[key] for key in message if key in ("names", "repartitions")} for message in sent(panel, "show")] == [
        {"names": True}, {"repartitions": True},
    ]  # fmt: skip
    fold = panel.locator('[data-node="block:1"]')
    fold.click()
    assert sent(panel, "fold")[-1]["cluster"] == 1
    # what Python draws then: one box, and the failure in it is told; the keyboard stays where it was
    fold.focus()
    panel.evaluate("state => window.model.set(state)", shown(picture, View(collapsed=frozenset({0, 1, 2}))))
    part = panel.locator('[data-node="part:1"]')
    assert panel.evaluate("() => document.activeElement.dataset.node") == "part:1"
    assert part.get_attribute("aria-expanded") == "false"
    assert any("✖ failed" in text for text in panel.locator('[data-node^="part:"]').all_text_contents())
    panel.keyboard.press("Enter")
    assert sent(panel, "fold")[-1]["cluster"] == 1
    panel.locator("button.folds").click()
    assert sent(panel, "fold")[-1]["cluster"] in ("all", "none")
    keep(panel, "picture_21_nodes_folded")


def test_links_are_as_thick_as_what_passes_and_curves_are_drawn(panel: Any) -> None:  # noqa: F811
    panel.evaluate("state => window.show(state)", shown(shop()))
    width = panel.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll('[data-link]')]
            .map(link => [`${link.dataset.from} ${link.dataset.to}`, parseFloat(getComputedStyle(link).strokeWidth)]))"""
    )
    thick = next(value for link, value in width.items() if link.startswith("topic:orders "))
    thin = next(value for link, value in width.items() if link.endswith("topic:rejected"))
    assert thick > thin + 2
    link = panel.locator('[data-from="topic:orders"] title')
    assert link.text_content() == "35,000 records/s"
    curve = panel.locator(".tools .rate .spark")
    assert "records per second over the last 59 s" in curve.get_attribute("aria-label")
    assert len(curve.locator("polyline").get_attribute("points").split()) == 60
    assert "lag" in panel.locator(".tools .lag").inner_text()


BEAT = "() => { window.beats = setInterval(() => window.model.set({ beat: (window.model.get('beat') || 0) + 1 }), 300); }"
SILENCE = """() => {
    const shown = document.querySelector('.ks-panel');
    new MutationObserver(() => { if (shown.dataset.kernel === 'silent') window.silent ??= performance.now(); })
        .observe(shown, { attributes: true, attributeFilter: ['data-kernel'] });
    clearInterval(window.beats);
    window.stopped = performance.now();
}"""
GREY = """() => ({
    text: document.querySelector('.lost').textContent, status: document.querySelector('.ks-panel').dataset.status,
    live: [...document.querySelectorAll('.ks-panel .bar:not(.tools) button, button.apply')].filter(button => !button.disabled).length,
    filter: getComputedStyle(document.querySelector('.canvas')).filter,
})"""


def test_a_kernel_that_is_not_heard_any_more_is_not_shown_as_running(panel: Any) -> None:  # noqa: F811
    panel.evaluate("state => window.show(state)", shown(shop()))
    panel.evaluate(BEAT)
    panel.wait_for_timeout(2500)
    assert panel.locator(".lost").is_hidden() and panel.locator("button.pause").is_enabled()
    panel.evaluate(SILENCE)
    panel.wait_for_function("() => window.silent")
    assert panel.evaluate("() => window.silent - window.stopped") < 2000
    grey = panel.evaluate(GREY)
    assert grey["live"] == 0 and grey["status"] == "no kernel" and "grayscale" in grey["filter"]
    assert 'session.attach("shop")' in grey["text"] and "No message from the kernel" in grey["text"]
    # what is known stays readable, and it comes back by itself
    panel.locator("button.fit").click()
    panel.evaluate(BEAT)
    panel.wait_for_function("() => document.querySelector('.ks-panel').dataset.status === 'running'")
    assert panel.locator("button.pause").is_enabled() and panel.locator(".lost").is_hidden()


@pytest.mark.parametrize("detached", [False, True])
def test_a_restart_says_what_became_of_the_application(panel: Any, detached: bool) -> None:  # noqa: F811
    panel.evaluate("state => window.show(state)", shown(shop(), detached=detached))
    panel.evaluate("() => window.model.trigger('comm_live_update')")
    panel.evaluate("() => window.model.set({ beat: 99 })")  # it was on its way
    grey = panel.evaluate(GREY)
    assert grey["live"] == 0 and grey["text"].startswith("The kernel was restarted")
    assert ("continues in its own process" if detached else "stopped with the kernel at its last commit") in grey["text"]
    assert 'session.attach("shop")' in grey["text"]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pictures_are_kept(panel: Any, theme: str) -> None:  # noqa: F811
    """Artefacts for people to look at, and: no text is wider than its box."""
    panel.evaluate(f"() => {{ document.body.dataset.jpThemeLight = '{'true' if theme == 'light' else 'false'}'; }}")
    panel.add_style_tag(content=f"body{{{LAB[theme]}}}")
    rows = "".join(f"<tr><td>customer-{n}</td><td>{n * 17}</td></tr>" for n in range(40))
    panel.evaluate("state => window.show(state)", shown(shop(), selected="store:totals", detail=f"<table>{rows}</table>"))
    wide = panel.evaluate(
        """() => [...document.querySelectorAll('[data-node][data-top]')].filter(group => {
            const box = group.querySelector('.outline').getBBox();
            return [...group.querySelectorAll('text:not(.badge)')].some(text => text.getBBox().width > box.width - 2);
        }).map(group => group.dataset.node)"""
    )
    keep(panel, f"picture_21_nodes_{theme}")
    assert wide == []
    panel.evaluate("state => window.show(state)", shown(shop(), View(names=True, repartitions=True)))
    keep(panel, f"picture_21_nodes_names_{theme}")
    panel.evaluate("() => window.model.trigger('comm_live_update')")
    keep(panel, f"picture_kernel_gone_{theme}")
    panel.evaluate("state => window.show(state)", shown(replace(large(7), state="running")))
    keep(panel, f"picture_200_nodes_{theme}")
    panel.locator("button.fit").click()
    keep(panel, f"picture_200_nodes_fitted_{theme}")


def pixel(panel: Any, selector: str) -> list[int]:  # noqa: F811
    """The colour in the corner of what is on the screen."""
    shot = base64.b64encode(panel.locator(selector).screenshot()).decode()
    found: list[int] = panel.evaluate(
        """async shot => {
            const image = new Image();
            image.src = `data:image/png;base64,${shot}`;
            await image.decode();
            const canvas = document.createElement('canvas').getContext('2d');
            canvas.drawImage(image, -12, 6 - image.height);
            return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
        }""",
        shot,
    )
    return found


@pytest.mark.parametrize("system", ["light", "dark"])
def test_a_static_picture_has_the_theme_of_jupyterlab_and_paper_is_white(panel: Any, system: str) -> None:  # noqa: F811
    """In the dark theme it was turned round by a filter: a grey slab with faint lines."""
    html = mimebundle(shop(), "shop", note="Application('shop', running)")["text/html"]
    for theme, paper in (("dark", [17, 17, 17]), ("light", [255, 255, 255])):
        panel.emulate_media(color_scheme=system, media="screen")
        style = "{" + LAB[theme] + "}"
        panel.set_content(f"<body data-jp-theme-light='{'false' if theme == 'dark' else 'true'}'><style>body{style}</style>{html}</body>")
        panel.wait_for_function("() => document.querySelector('img.ks-image').complete")
        assert pixel(panel, "img.ks-image") == paper, (theme, system)
        assert panel.locator("img.ks-image").evaluate("image => getComputedStyle(image).filter") == "none"
        if theme != system:
            panel.locator("img.ks-image").screenshot(path=str(ARTEFACTS / f"picture_static_{theme}.png"))
        panel.emulate_media(color_scheme=system, media="print")
        assert pixel(panel, "img.ks-image") == [255, 255, 255], "on paper"


def test_a_printed_panel_is_the_whole_picture_in_light_colours(panel: Any) -> None:  # noqa: F811
    panel.evaluate("() => { document.body.dataset.jpThemeLight = 'false'; }")
    panel.add_style_tag(content=f"body{{{LAB['dark']}}}")
    panel.evaluate("state => window.show(state)", shown(shop(), View(repartitions=True), selected="store:totals", detail="<p>rows</p>"))
    panel.emulate_media(media="print")
    fill = "() => getComputedStyle(document.querySelector('.canvas .paper')).fill"
    assert panel.evaluate(fill) == "rgb(255, 255, 255)"
    box = panel.locator(".canvas").evaluate("one => [one.clientWidth - one.scrollWidth, one.clientHeight - one.scrollHeight]")
    assert min(box) >= -2, "nothing is cut off"
    assert panel.locator(".map").is_hidden() and panel.locator("button.pause").is_hidden()
    keep(panel, "picture_printed")
