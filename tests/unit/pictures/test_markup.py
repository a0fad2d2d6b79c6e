from __future__ import annotations

import html
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstreams_repl.pictures.markup import Markup, clean_text, element, image, join, style_sheet

XSS = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "' onmouseover='alert(1)",
    "</title><script>alert(1)</script>",
    "javascript:alert(1)",
    '<a href="javascript:alert(1)">x</a>',
    "]]><script>alert(1)</script>",
    "<iframe srcdoc='<script>alert(1)</script>'>",
    "&lt;script&gt;",
]


@pytest.mark.parametrize("text", XSS)
def test_text_is_shown_and_never_markup(text: str) -> None:
    made = element("td", text, title=text)
    assert re.findall(r"<[^>]*>", made) == [re.match(r"<td[^>]*>", made).group(), "</td>"]  # type: ignore[union-attr]
    assert html.unescape(made.removesuffix("</td>").partition(">")[2]) == text


@given(st.text())
def test_no_text_makes_an_element(text: str) -> None:
    made = element("p", text, title=text)
    assert made.count("<") == made.count(">") == 2


def test_markup_goes_in_as_it_is() -> None:
    assert element("p", element("b", "x"), None, 5) == "<p><b>x</b>5</p>"
    assert isinstance(join([element("b", "x"), "<"]), Markup)


@pytest.mark.parametrize(
    "attributes", [{"onclick": "x"}, {"href": "javascript:alert(1)"}, {"src": "http://elsewhere/x.png"}, {"a b": "x"}]
)
def test_what_could_run_or_fetch_is_refused(attributes: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="markup refused"):
        element("a", "x", **attributes)


def test_a_style_sheet_cannot_end_itself() -> None:
    with pytest.raises(ValueError, match="markup refused"):
        style_sheet("</style><script>")


def test_an_image_takes_markup_only() -> None:
    with pytest.raises(ValueError, match="markup refused"):
        image("<svg/>", alt="x", width=1, height=1, class_="x")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("a\x00b", "a\\x00b"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("line\nbreak\ttab", "line\nbreak\ttab"),
        ("bell\x07 back\x08 del\x7f csi\x9b", "bell\\x07 back\\x08 del\\x7f csi\\x9b"),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
        ("ünïcödé 日本 😀", "ünïcödé 日本 😀"),
    ],
)
def test_controls_become_visible(text: str, shown: str) -> None:
    assert clean_text(text) == shown


def test_long_text_is_cut() -> None:
    assert clean_text("x" * 1000, limit=10) == "x" * 9 + "…"
