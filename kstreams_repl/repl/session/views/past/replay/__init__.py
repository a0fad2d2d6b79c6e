"""Records of a task processed again, in a copy of the task as of a commit.

In: a state directory and the committed offsets (`state`), the records of the inputs, recorded answers. Out: a `RecordTrace` of each record,
and the stores after any of them. Read first: `replica` (the copy), then `before_record` (what it begins with), `replays` (whole commits).
"""
