"""Deployed applications: what a user calls (`application`), and by idea what stands behind it."""
