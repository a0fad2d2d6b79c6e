"""What the answers of a Schema Registry mean."""

from __future__ import annotations

import pytest
from confluent_kafka.schema_registry.error import SchemaRegistryError as Refused

from kstreams_repl.engine.serdes.schemas.schema_registry import translated
from kstreams_repl.system.errors import SchemaRegistryError, SchemaRegistryUnavailableError


def test_a_subject_that_two_instances_register_at_once_is_registered_again() -> None:
    """Apicurio refuses the second one; Confluent's registry returns the same id."""
    raced = Refused(409, 409, "An artifact with ID 'app-store-changelog-value' in group 'null' already exists.")
    assert isinstance(translated(raced, "write a value"), SchemaRegistryUnavailableError)


@pytest.mark.parametrize("status", [401, 403, 409, 422])
def test_a_refused_schema_is_not_tried_again(status: int) -> None:
    found = translated(Refused(status, 409, "Schema being registered is incompatible with an earlier schema"), "write a value")
    assert isinstance(found, SchemaRegistryError) and not isinstance(found, SchemaRegistryUnavailableError)
