"""The front end of the picture by itself, in a real browser: updates in place, keyboard, dark mode, and hostile texts that stay text."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from kernel_ext.live.live_picture import START
from kstreams_repl.engine.dsl import StreamsBuilder
from kstreams_repl.pictures import Mark, Picture, Table, picture_of, svg_of
from kstreams_repl.pictures.front_end import bundle
from kstreams_repl.pictures.graph.arrange import room_for
from kstreams_repl.pictures.graph.live_marks import mark_lines
from kstreams_repl.pictures.graph.mimebundle import mimebundle
from kstreams_repl.pictures.graph.picture import Cluster, Kind, Link, Shape
from kstreams_repl.pictures.markup import element, join
from tests.browser.conftest import CHROMIUM
from tests.browser.driving import keep
from tests.daily_share import daily_share

ROOT = Path(__file__).resolve().parents[2]
SOURCE = bundle("panel.js")
CORPUS: dict[str, list[str]] = json.loads((ROOT / "tests" / "data" / "hostile.json").read_text())

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")]

MODEL = """
window.show = (state) => {
    const calls = [];
    window.sent = [];
    window.model = {
        get: (name) => state[name],
        on: (event, call) => calls.push([event, call]),
        off: (event, call) => {
            const at = calls.findIndex((entry) => entry[0] === event && entry[1] === call);
            if (at >= 0) calls.splice(at, 1);
        },
        send: (message) => window.sent.push(message),
        set: (changed) => {
            Object.assign(state, changed);
            const events = Object.keys(changed).map((name) => `change:${name}`);
            for (const call of new Set(calls.filter(([event]) => events.includes(event)).map((entry) => entry[1]))) call();
        },
        listeners: () => calls.length,
        trigger: (event) => { for (const [wanted, call] of [...calls]) if (wanted === event) call(); },
    };
    const el = document.createElement("div");
    document.body.replaceChildren(el);
    window.leave = window.ksPanel.render({ model: window.model, el });
};
"""


@pytest.fixture
def panel(page: Any) -> Any:
    """A page that can `show(state)`; dialogs and other windows are noticed."""
    page.noticed = []
    page.on("dialog", lambda dialog: (page.noticed.append(f"dialog {dialog.message}"), dialog.dismiss()))
    page.on("popup", lambda popup: page.noticed.append("popup"))
    page.set_content("<!doctype html><html lang=en><body></body></html>")
    plain = SOURCE.replace("export default { render };", "window.ksPanel = { render };")
    page.add_script_tag(type="module", content=plain)
    page.add_script_tag(content=MODEL)
    page.wait_for_function("() => window.ksPanel")
    return page


def state_with(picture: Picture, **more: Any) -> dict[str, Any]:
    room = room_for(picture)
    return {
        **START,
        "name": picture.title,
        "status": "running",
        "svg": str(svg_of(picture, room=room)),
        "marks": mark_lines(picture),
        **more,
    }


def large(number: int) -> Picture:
    """200 nodes in 20 sub-topologies, each with a source, a count with its store, and marks that depend on a number."""
    builder = StreamsBuilder()
    for part in range(20):
        stream = builder.stream(f"in-{part}", name=f"source-{part}")
        for step in range(7):
            stream = stream.map_values(lambda value: value, name=f"step-{part}-{step}")
        stream.group_by_key().count(store=f"counts-{part}", name=f"count-{part}").to_stream(name=f"out-{part}")
    topology = builder.build()
    picture = picture_of(topology, title="large")
    assert sum(shape.kind in (Kind.SOURCE, Kind.PROCESSOR, Kind.SINK) for shape in picture.shapes) == 200
    lines = {Kind.SOURCE: (f"{number:,} records", f"{number} records/s", f"lag {number}"), Kind.STORE: (f"{number:,} rows",)}
    found = {
        shape.id: Mark(None if shape.kind in (Kind.STORE, Kind.TOPIC) else "running", lines.get(shape.kind, ()))
        for shape in picture.shapes
    }
    return Picture(picture.title, picture.shapes, picture.links, picture.clusters, found)


@pytest.mark.slow
def test_a_button_that_the_kernel_does_not_hear_says_what_it_waits_for(panel: Any) -> None:
    panel.evaluate("state => window.show(state)", state_with(large(1)))
    pause, stop = panel.locator("button.pause"), panel.locator("button.stop")
    pause.click()
    panel.wait_for_function("() => document.querySelector('button.pause').textContent === 'pause: waits for the running cell'")
    assert pause.is_disabled() and stop.is_enabled()
    assert panel.evaluate("() => window.sent.filter(message => message.do === 'pause').length") == 1
    panel.evaluate("() => window.model.set({ busy: true })")
    assert pause.inner_text() == "pause" and pause.is_disabled() and stop.is_disabled()
    panel.evaluate("() => window.model.set({ busy: false })")
    assert pause.is_enabled() and pause.get_attribute("title") == "Stop at a commit"
    # one that is heard at once never says it
    pause.click()
    panel.evaluate("() => { window.model.set({ busy: true }); window.model.set({ busy: false, status: 'paused' }); }")
    panel.wait_for_timeout(600)
    assert pause.inner_text() == "pause" and panel.locator("button.resume").is_enabled()


def test_what_is_shown_belongs_to_the_chosen_shape_before_the_kernel_has_answered(panel: Any) -> None:
    """ "go to cell" of the shape before would lead to the wrong cell."""
    texts = {
        "detail": "<p>rows of count</p>",
        "values": "<p>values of count</p>",
        "about": '<button data-cell="of count">go to cell</button>',
    }
    panel.evaluate("state => window.show(state)", state_with(large(1), selected="node:count-3", **texts))
    panel.evaluate("() => document.addEventListener('kstreams:show-cell', event => { window.shown = event.detail.cell; })")
    behind, go = panel.locator(".behind"), panel.get_by_role("button", name="go to cell")
    assert behind.inner_text().split("\n\n")[:2] == ["rows of count", "values of count"]
    panel.locator('[data-node="node:step-3-1"]').click()
    assert behind.inner_text().strip() == "" and go.count() == 0
    # the answer comes in one message or in several; what it says is of the chosen shape
    panel.evaluate("() => window.model.set({ selected: 'node:step-3-1', detail: 'reading', values: '', about: '' })")
    assert behind.inner_text().strip() == "reading"
    panel.evaluate("""() => window.model.set({ about: '<button data-cell="of step">go to cell</button>' })""")
    go.click()
    assert panel.evaluate("() => window.shown") == "of step"
    # the shape that another view chooses
    panel.evaluate("texts => window.model.set({ selected: 'node:count-3', ...texts })", texts)
    assert "rows of count" in behind.inner_text()
    assert panel.locator('[data-node="node:count-3"]').get_attribute("aria-pressed") == "true"


def test_a_failures_buttons_ask_and_act(panel: Any) -> None:
    failure = (
        '<div class="ks-ways"><button data-do="record" data-at="in-0@7">show this record</button>'
        '<button data-do="skip" data-at="in-0@7" data-ask="Skip &lt;b&gt;in-0@7 and continue?">skip it</button>'
        '<button data-cell="of step" data-line="4">edit the function</button></div>'
    )
    panel.evaluate("state => window.show(state)", state_with(large(1), selected="node:count-3", failure=failure, status="failed"))
    panel.evaluate("() => document.addEventListener('kstreams:show-cell', event => { window.shown = event.detail; })")

    def press(name: str) -> list[dict[str, str]]:
        panel.locator(".drawer").get_by_role("button", name=name, exact=True).click()
        sent: list[dict[str, str]] = panel.evaluate("() => window.sent.filter(({ do: what }) => what === 'skip' || what === 'record')")
        return [{name: told for name, told in message.items() if name != "view"} for message in sent]

    record, skip = ({"do": what, "at": "in-0@7"} for what in ("record", "skip"))
    assert press("show this record") == [record]
    assert press("skip it") == [record] and "Skip <b>in-0@7 and continue?" in panel.locator(".drawer").inner_text()
    assert press("no") == [record] and "and continue?" not in panel.locator(".drawer").inner_text()
    press("skip it")
    assert press("yes") == [record, skip]
    press("edit the function")
    assert panel.evaluate("() => window.shown") == {"cell": "of step", "line": 4}
    panel.evaluate("() => window.model.set({ busy: true })")
    assert panel.get_by_role("button", name="skip it").is_disabled()
    panel.evaluate("() => window.model.set({ busy: false })")
    assert panel.get_by_role("button", name="skip it").is_enabled()
    panel.evaluate("() => window.model.set({ failure: '' })")
    assert panel.get_by_role("button", name="skip it").count() == 0


def test_the_rows_of_a_store_are_turned_and_filtered(panel: Any) -> None:
    paging = {"filter": "", "label": "keys that begin with", "previous": False, "next": True, "text": "20 rows"}
    panel.evaluate("state => window.show(state)", state_with(large(1), selected="store:counts-3", detail="<p>rows</p>", paging=paging))
    field, turns = panel.get_by_label("keys that begin with"), panel.locator(".paging button:visible")
    assert [button.is_enabled() for button in turns.all()] == [False, True]
    turns.nth(1).click()
    page_two = {**paging, "previous": True, "next": False, "text": "page 2, 3 rows"}
    panel.evaluate("paging => window.model.set({ paging })", page_two)
    assert panel.locator(".paged").inner_text() == "page 2, 3 rows" and [button.is_enabled() for button in turns.all()] == [True, False]
    field.fill("ab")  # at once: a wait between two keys would send both
    panel.wait_for_function("() => window.sent.some(message => message.do === 'rows' && message.filter === 'ab')")
    panel.evaluate("paging => window.model.set({ paging })", page_two)  # an answer to something before does not undo what is typed
    assert field.input_value() == "ab"
    said = panel.evaluate("() => window.sent.filter(message => message.do === 'rows').map(({ view, ...rest }) => rest)")
    assert said == [{"do": "rows", "turn": "next"}, {"do": "rows", "filter": "ab"}]
    panel.locator('[data-node="node:step-3-1"]').click()  # the controls belong to the store
    assert panel.locator(".paging").is_hidden()


def test_a_store_is_shown_as_of_the_commit_that_the_slider_chooses(panel: Any) -> None:
    paging = {"filter": "", "label": "keys that begin with", "previous": False, "next": False, "text": "20 rows", "earlier": None}
    panel.evaluate("state => window.show(state)", state_with(large(1), selected="store:counts-3", detail="<p>rows</p>", paging=paging))
    button, slider = panel.get_by_role("button", name="earlier"), panel.get_by_label("commit")
    assert slider.is_hidden()
    button.click()
    for at, text in ((7, "now"), (3, "as of 2026-11-28 10:00:00.000 UTC")):
        panel.evaluate("paging => window.model.set({ paging })", {**paging, "earlier": {"last": 7, "at": at, "text": text}})
        assert (slider.input_value(), slider.get_attribute("aria-valuetext")) == (str(at), text)
        assert panel.locator(".moment").inner_text() == text
    slider.fill("5")
    panel.evaluate("() => window.model.set({ detail: '<table><tbody><tr><td>a</td></tr><tr><td>b</td></tr></tbody></table>' })")
    panel.locator(".detail td", has_text="b").click()
    button.click()
    said = panel.evaluate("() => window.sent.filter(message => message.do === 'rows').map(({ view, ...rest }) => rest)")
    assert said == [{"do": "rows", **each} for each in ({"earlier": True}, {"moment": 5}, {"why": 1}, {"earlier": False})]


def test_a_choice_that_went_with_an_edit_hides_nothing(panel: Any) -> None:
    """The kernel does not answer for a shape that the new version lacks."""
    panel.evaluate("state => window.show(state)", state_with(large(1)))
    behind = panel.locator(".behind")
    panel.locator('[data-node="node:step-3-1"]').click()
    panel.evaluate("() => window.model.set({ detail: '<p>the plan</p>', planned: true })")
    assert behind.inner_text().strip() == "the plan"
    panel.evaluate("() => window.model.set({ detail: '<p>applied</p>', planned: false })")
    assert behind.inner_text().strip() == ""
    panel.evaluate("""() => window.model.set({ svg: window.model.get("svg").replaceAll("node:step-3-1", "node:new") })""")
    assert behind.inner_text().strip() == "applied"


def test_an_update_of_two_hundred_nodes_changes_numbers_in_place(panel: Any) -> None:
    began = time.process_time()
    first = state_with(large(1))
    drawn = time.process_time() - began
    panel.evaluate("state => window.show(state)", first)
    shape = panel.locator('[data-node="store:counts-3"]')
    assert "1 rows" in shape.text_content()
    kept = shape.element_handle()
    # the time in the browser: the update with the layout that it makes necessary; the time in Python: marks of a new picture
    took = []
    for number in range(2, 22):
        picture = large(number)
        began = time.process_time()
        changed = mark_lines(picture)
        python = time.process_time() - began
        took.append(
            (
                panel.evaluate(
                    """changed => {
                        const began = performance.now();
                        window.model.set({ marks: changed });
                        document.querySelector(".ks-panel svg").getBoundingClientRect();
                        return performance.now() - began;
                    }""",
                    changed,
                ),
                python * 1000,
            )
        )
    browser, python = (sorted(times)[len(took) // 2] for times in zip(*took, strict=True))
    print(f"200 nodes: update {browser:.1f} ms in the browser (worst {max(took)[0]:.1f}), marks {python:.1f} ms in Python; "
          f"first drawing {drawn * 1000:.0f} ms in Python")  # fmt: skip
    assert "21 rows" in shape.text_content()
    assert kept.evaluate("node => node.isConnected"), "nothing was drawn anew"
    assert panel.evaluate("() => document.querySelector('.ks-panel').dataset.updated") == "40"  # sources and stores
    keep(panel, "picture_200_nodes")


def small(**marked: Mark) -> Picture:
    builder = StreamsBuilder()
    words = builder.stream("words", name="words").filter(lambda key, value: True, name="long")
    words.group_by_key().count(store="counts", name="count").to_stream(name="changes").to("out", name="to-out")
    picture = picture_of(builder.build(), title="words (running)")
    given = {"node:words": Mark("running", ("1,204 records", "35 records/s", "lag 3")), "node:long": Mark("stale")}
    given |= {
        "node:count": Mark("failed", ("ZeroDivisionError",)),
        "node:changes": Mark("paused"),
        "node:to-out": Mark("restoring"),
    }
    given |= {"store:counts": Mark(None, ("17 rows",))}
    return Picture(picture.title, picture.shapes, picture.links, picture.clusters, {**given, **marked})


def test_the_picture_is_worked_by_keyboard_and_says_itself(panel: Any) -> None:
    panel.evaluate("state => window.show(state)", state_with(small(), note="words"))
    assert panel.locator(".ks-panel svg [tabindex='0']").count() == 1, "one stop for Tab, arrows go on from there"
    for _ in range(6):
        panel.keyboard.press("Tab")
        if panel.evaluate("() => document.activeElement.dataset.node !== undefined"):
            break
    seen = []
    for _ in range(7):
        seen.append(panel.evaluate("() => document.activeElement.dataset.node"))
        panel.keyboard.press("ArrowDown")
    assert {"node:words", "node:long", "node:count"} <= set(seen), seen
    panel.keyboard.press("Home")
    chosen = panel.evaluate("() => document.activeElement.dataset.node")
    panel.keyboard.press("Enter")
    assert panel.evaluate("() => window.sent.filter(message => message.do === 'select')").pop()["shape"] == chosen
    tree = panel.locator(".ks-panel").aria_snapshot()
    assert 'button "source words, source, ▶ running, 1,204 records, 35 records/s, lag 3"' in tree
    assert "✖ failed" in tree and "✎ stale" in tree and "store counts" in tree
    assert 'toolbar "control of words (running)"' in tree and 'button "pause"' in tree
    panel.keyboard.press("Escape")
    assert panel.evaluate("() => window.sent.filter(message => message.do === 'select')").pop()["shape"] == ""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_themes_follow_jupyterlab(panel: Any, theme: str) -> None:
    panel.evaluate(f"() => {{ document.body.dataset.jpThemeLight = '{'true' if theme == 'light' else 'false'}'; }}")
    panel.add_style_tag(content="body[data-jp-theme-light='false']{background:#111;color:#eee;--jp-layout-color0:#111;--jp-layout-color1:#1e1e1e;"
                        "--jp-ui-font-color1:#eee;--jp-ui-font-color2:#aaa;--jp-border-color1:#555;--jp-layout-color2:#333}")  # fmt: skip
    panel.evaluate("state => window.show(state)", state_with(small(), note="words", selected="store:counts"))
    fill = panel.evaluate("() => getComputedStyle(document.querySelector('.store .outline')).fill")
    assert fill == ("rgb(255, 248, 197)" if theme == "light" else "rgb(51, 42, 5)")
    keep(panel, f"picture_{theme}")


def test_nothing_is_left_when_the_output_goes(panel: Any) -> None:
    panel.evaluate("state => window.show(state)", state_with(small()))
    assert panel.evaluate("() => window.model.listeners()") > 0
    panel.evaluate("() => window.leave()")
    assert panel.evaluate("() => window.model.listeners()") == 0
    assert panel.evaluate("() => window.sent.at(-1).do") == "gone"


def hostile(text: str) -> Picture:
    name = text[:300]
    shapes = tuple(Shape(f"{kind}:{name}", kind, name, text[:300], None if kind is Kind.TOPIC else 0) for kind in Kind)
    links = tuple(Link(shapes[0].id, shape.id) for shape in shapes[1:])
    return Picture(name, shapes, links, (Cluster(0, name),), {shape.id: Mark("failed", (text, text)) for shape in shapes})


HOSTILE = [text * (5_000 if kind == "huge" else 1) for kind, texts in CORPUS.items() for text in texts]


@pytest.mark.parametrize("texts", [daily_share(HOSTILE, 4), pytest.param(HOSTILE, marks=pytest.mark.slow)], ids=["of today", "all"])
def test_hostile_texts_do_nothing_in_a_real_browser(panel: Any, texts: list[str]) -> None:
    """R23: every form of output with every text of the corpus, in the page, looked at, clicked and pointed at."""
    for start in range(0, len(texts), 12):
        some = texts[start : start + 12]
        pictures = [hostile(text) for text in some]
        table = Table.of(tuple(some), [tuple(some), tuple([text] for text in some)], note=some[0], title=some[-1])
        body = join([table.html(), *(element("pre", text, title=text) for text in some)])
        images = "".join(mimebundle(picture, text, note=text)["text/html"] for picture, text in zip(pictures, some, strict=True))
        for picture, text in zip(pictures, some, strict=True):
            more = {"detail": str(body), "about": str(element("pre", text)), "note": text, "status": text}
            panel.evaluate("state => window.show(state)", state_with(picture, **more))
            panel.evaluate("marks => window.model.set({ marks, note: 'x' })", mark_lines(pictures[0]))
        panel.evaluate(
            "html => { document.body.append(Object.assign(document.createElement('div'), { innerHTML: html })); }", images
        )
        panel.evaluate(
            """() => {
                for (const node of document.querySelectorAll("body *")) {
                    for (const type of ["mouseover", "mouseenter", "focus", "click", "animationstart", "toggle", "load", "error"]) {
                        node.dispatchEvent(new Event(type, { bubbles: false }));
                    }
                }
            }"""
        )
        assert panel.evaluate("() => window.pwned") is None, some
        made = "body script, iframe, object, embed, form, input:not(.paging > input), link, base, meta[http-equiv]"
        assert panel.evaluate("made => document.querySelectorAll(made).length", made) == 0
    assert panel.noticed == []
    assert len(panel.frames) == 1 and len(panel.context.pages) == 1
