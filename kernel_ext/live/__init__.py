"""What changes while it is shown: the live picture, the panels, tables that follow a topic, progress.

In: an application. Out: widgets. Read first: `live_picture`.
"""
