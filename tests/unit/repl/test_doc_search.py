"""Questions as people ask them find the page that answers them, offline and in the built site."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import kstreams_repl as ks
from kstreams_repl.repl import doc_search

QUESTIONS = {
    "how do I count distinct users per day": "recipes/distinct",
    "why is my join empty": "tasks/empty-results",
    "late records": "concepts/late-records",
    "reset an application": "tasks/replay",
    "dead letters": "recipes/dead-letters",
    "remove duplicate events": "recipes/deduplicate",
    "what happens when a worker crashes": "concepts/exactly-once",
    "test a topology with pytest": "recipes/unit-test",
    "change a function while it runs": "concepts/editing",
    "difference between stream and table": "concepts/streams-and-tables",
    "query a store from another program": "tasks/queries",
    "how many partitions do I need": "concepts/partitions",
    "my result is too small": "tasks/empty-results",
    "alert when a sensor is silent": "recipes/absence",
    "how do I change the key of a stream": "concepts/partitions",
    "delete a topic and start again": "tasks/topics",
    "how do I set the timestamp from a column": "concepts/time",
    "how do I write to Parquet daily": "tasks/tables",
    "my window result never comes out": "concepts/time",
}


@pytest.mark.parametrize(("question", "page"), QUESTIONS.items(), ids=QUESTIONS)
def test_a_question_finds_its_page_within_the_first_three(question: str, page: str) -> None:
    assert f"docs/{page}.md" in [row[0] for row in ks.recipes.search(question).rows[:3]]


def test_quotes_and_signs_are_words_only() -> None:
    assert ks.recipes.search('late" OR records:* NEAR(').rows == ks.recipes.search("late or records near").rows


@pytest.mark.parametrize("words", ["", "?", "how do I"])
def test_no_word_to_search_for_is_a_wrong_call(words: str) -> None:
    with pytest.raises(ks.errors.CallError, match="expected words to search for"):
        ks.recipes.search(words)


@pytest.mark.parametrize("call", [lambda: ks.recipes.search("late"), ks.recipes.list, lambda: ks.recipes.open("distinct")])
def test_an_installation_without_pages_says_so_when_they_are_asked_for(
    call: Callable[[], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doc_search, "_PLACES", (tmp_path / "package" / "docs", tmp_path / "docs"))
    with pytest.raises(ks.errors.MissingPackageError, match=r"(?s)pages are not installed: expected .*docs or .*docs.*Hint: install"):
        call()
