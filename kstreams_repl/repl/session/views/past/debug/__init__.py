"""A debugger of one record, and the test that it writes.

In: a task just before the record (`replay.before_record`). Out: what happened at each node. Read first: `debugger`; `opening` finds the
record.
"""
