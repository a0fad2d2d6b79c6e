"""Forks: a changed topology that runs with the application's state and input beside it, until it is promoted or dropped.

`fork` is what the user holds; `fork_topology` says what a fork writes and what it leaves out, `fork_start` how it begins at a commit of
its parent, `promotion` how it takes the parent's place, `dropping` how nothing of it stays.
"""
