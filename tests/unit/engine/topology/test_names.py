"""Names that Kafka accepts, and the counter behind generated ones."""

from __future__ import annotations

import pytest

from kstreams_repl.engine.topology.names import NameProvider, changelog_topic, internal_topic, validate_name
from kstreams_repl.system.errors import InvalidNameError


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249])
def test_legal_names_pass_unchanged(name: str) -> None:
    assert validate_name(name, "topic") == name


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ä", "x" * 250, "a\n", "a:b", None, 5])
def test_illegal_names_are_refused_with_a_hint(name: object) -> None:
    with pytest.raises(InvalidNameError) as refused:
        validate_name(name, "topic")
    assert refused.value.hint


def test_an_illegal_character_is_answered_with_a_legal_name() -> None:
    with pytest.raises(InvalidNameError, match="topic name 'my topic'") as refused:
        validate_name("my topic", "topic")
    assert "my-topic" in str(refused.value)


def test_processors_and_stores_share_one_counter() -> None:
    names = NameProvider()
    assert names.new_processor_name("KSTREAM-MAP-") == "KSTREAM-MAP-0000000000"
    assert names.new_store_name("KSTREAM-AGGREGATE-") == "KSTREAM-AGGREGATE-STATE-STORE-0000000001"
    assert names.new_processor_name("KSTREAM-MAP-") == "KSTREAM-MAP-0000000002"


def test_a_given_name_uses_a_number_up() -> None:
    names = NameProvider()
    assert names.name_or_generate("mine", "KSTREAM-MAP-") == "mine"
    assert names.suffix_or_generate("mine", "-sink", "KSTREAM-SINK-") == "mine-sink"
    assert names.name_or_generate(None, "KSTREAM-MAP-") == "KSTREAM-MAP-0000000002"


def test_internal_topics_begin_with_the_application_id() -> None:
    assert changelog_topic("app", "counts") == "app-counts-changelog"
    assert internal_topic("app", "x-repartition") == "app-x-repartition"
