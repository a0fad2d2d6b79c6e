"""What a query server's errors say is read by typed attributes, also after the error has crossed a process."""

from __future__ import annotations

import pickle

import pytest

from kstreams_repl.serving.queries.read import BEHIND
from kstreams_repl.serving.server.answers import status_of
from kstreams_repl.system.errors import AccessDeniedError, SerializationError, StateStoreNotAvailableError


def test_an_error_has_its_status_and_position_or_none() -> None:
    behind = pickle.loads(pickle.dumps(StateStoreNotAvailableError("behind", status=BEHIND, position='{"in":{"0":4}}')))
    assert (behind.status, behind.position, status_of(behind)) == (BEHIND, '{"in":{"0":4}}', BEHIND)
    other = StateStoreNotAvailableError("restoring")
    assert (other.status, other.position) == (None, None)
    assert (AccessDeniedError("no token", status=401).status, AccessDeniedError("refused").status) == (401, None)


@pytest.mark.parametrize("answered", ["412", None, 412.0, {}])
def test_a_status_or_position_of_another_type_in_an_answer_is_none(answered: object) -> None:
    error = StateStoreNotAvailableError("behind", status=answered, position=7)
    assert (error.status, error.position) == (None, None)


def test_bytes_that_cannot_be_read_differ_from_values_that_cannot_be_written() -> None:
    assert (status_of(SerializationError("bytes", reading=True)), status_of(SerializationError("value"))) == (409, 400)
