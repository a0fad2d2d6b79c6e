"""The past of an application: its state as of a commit, and one record of it, stepped through again."""
