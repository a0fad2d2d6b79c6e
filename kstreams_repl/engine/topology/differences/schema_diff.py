"""What an edit or a deploy changes in the schemas of topics and stores. Pure data: the registry is asked elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

Role = Literal["source", "sink", "store"]


class SchemaChange(StrEnum):
    COMPATIBLE = "compatible"  # go on
    MIGRATE = "needs migrate"  # rows of a store would be misread, or not be written: convert them
    REFUSED = "refused"
    NOT_COMPARED = "not compared"
    NO_ANSWER = "no answer"  # of the registry


@dataclass(frozen=True, slots=True)
class SchemaDiff:
    """The schema of the keys or values of one store or topic, compared with what is there.

    Attributes:
        role, owner: what has it: a source, a sink or a store, and its name.
        topic: its topic on the broker: of a store, the changelog.
        part: "key" or "value".
        subject: in the registry; empty for a schema without a registry.
        reason: with which version it was compared, by which rule, and the field at which it fails.
        hint: how to proceed, if it is refused.
        begins: whether there are no rows of an earlier schema, so that a version may begin that fits none of the subject's.
        edited: whether the schema differs from that of the topology before.
    """

    role: Role
    owner: str
    topic: str
    part: str
    change: SchemaChange
    subject: str = ""
    reason: str = ""
    hint: str = ""
    begins: bool = False
    edited: bool = False

    @property
    def stops(self) -> bool:
        """Return whether it prevents the edit as it is."""
        return self.change in (SchemaChange.MIGRATE, SchemaChange.REFUSED)

    def __str__(self) -> str:
        return f"schema of the {self.part}s of {self.topic}: {self.change}" + (f" ({self.reason})" if self.reason else "")
