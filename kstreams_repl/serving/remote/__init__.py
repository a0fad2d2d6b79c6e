"""Answers from the stores of other hosts, over HTTP; which host has which key.

In: a `Read`, the journal's placements. Out: rows, or the error of the host that has them. Read first: `client`, then `discovery`.
"""
