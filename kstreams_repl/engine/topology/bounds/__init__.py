"""Where reading begins and ends: the reset policy of a source, the stop of a bounded run.

In: what the user wrote. Out: values that the host turns into offsets. Read first: `stop_at`.
"""
