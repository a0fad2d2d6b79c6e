"""What a notebook talks to: the session, its applications, and SQL over topics and stores.

In: the user's calls. Out: applications, tables, pictures. Read first: `session.session`, then `session.application.starting.deploy`.
"""
