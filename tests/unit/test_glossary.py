"""The glossary lists each word once, and explains the words that have several meanings elsewhere."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

GLOSSARY = Path(__file__).resolve().parents[2] / "docs" / "reference" / "glossary.md"


def glossary_words() -> list[str]:
    entries = re.findall(r"^- \*\*([^*]+)\*\*: ", GLOSSARY.read_text(encoding="utf-8"), re.MULTILINE)
    return [word for entry in entries for word in re.split(", | / ", entry)]


def test_the_glossary_lists_each_word_once() -> None:
    words = Counter(glossary_words())
    assert len(words) >= 40 and [word for word, count in words.items() if count > 1] == []


@pytest.mark.parametrize("word", ["cell", "engine", "slot", "session", "peek"])
def test_the_glossary_explains_a_word_that_had_several_meanings(word: str) -> None:
    assert word in glossary_words()
