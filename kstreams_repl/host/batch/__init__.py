"""Bounded runs of an application: to the stop offsets, exactly there, and then the end (KIP-95; docs/tasks/batch.md)."""
