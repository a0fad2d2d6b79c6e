"""Applications that run elsewhere, read-only: on the JVM or in another notebook, from what they leave on the broker.

In: an application id and a broker. Out: pictures, tables, SQL over its stores. Read first: `look_at`, then `changelog_stores`.
"""

from kstreams_repl.repl.look.look_at import Look, look

__all__ = ["Look", "look"]
