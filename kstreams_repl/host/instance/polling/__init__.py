"""The poll loop, and the order in which tasks process their records."""
