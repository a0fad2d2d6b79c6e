"""Answers from the stores of this host, at a commit.

In: a `Read` or a v2 query, and the state of tasks on this machine. Out: rows. Read first: `queryable_state`, then `read_only_stores`.
"""
