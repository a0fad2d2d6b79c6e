"""What the stores of tasks had at earlier commits, and which version of the application ran then.

In: the commits of the group, changelogs, snapshots, the versions of the session file. Out: `CommitHistory`, state directories as of commits
(`state_builder`), the application of then (`ran_versions`). Read first: `commit_history`, then `state_builder`; `compaction` says whether a
changelog still has what it had.
"""
