"""An example for every method of a session and of an application, put below its docstring: what `session.peek?` shows.

In them `session` is connected, `app` runs a count of words by key, and `builder` is what it was deployed from. tests/session run them all,
those of a session on a broker, those of an application on Spark.
"""

from __future__ import annotations

from collections.abc import Mapping

EXAMPLES: Mapping[str, str] = {
    "Session.settings": "session.settings.bootstrap_servers == session.bootstrap_servers\n|True",
    "Session.started": "session.started\n|True",
    "Session.bootstrap_servers": "host, port = session.bootstrap_servers.split(':')",
    "Session.admin": "session.admin.partitions('words')\n|2",
    "Session.start": "session.start() is session\n|True",
    "Session.topics": "session.topics()",
    "Session.create_topic": "session.create_topic('orders', partitions=2)\n|True",
    "Session.produce": "session.produce('orders', [('ada', {'amount': 3}), ('bob', {'amount': 5})])\n|2",
    "Session.read": "[record.value for record in session.read('words', n=2)]\n|['not', 'to']",
    "Session.record": "recording = session.record('words', n=100)\nlen(recording)\n|5",
    "Session.serdes_of": "key_serde, value_serde = session.serdes_of('words')",
    "Session.peek": "session.peek('words', n=2)\nsession.peek('long', topology=builder)",
    "Session.sample": "sample = session.sample(builder, n=3)",
    "Session.sql": "session.sql('SELECT value AS word, count(*) AS n FROM words GROUP BY ALL ORDER BY word').fetchall()[0]\n|('be', 1)",
    "Session.spark_frame": "frame = session.spark_frame('words')\nframe.count()\n|5",
    "Session.applications": "session.applications",
    "Session.deploy": """
        app = session.deploy(builder, "letters", processing_guarantee="exactly_once_v2")
        app.stop().status
        |'stopped'
        """,
    "Session.detached": "session.detached\n|{}",
    "Session.plan": "session.plan(builder, 'word-count')",
    "Session.cleanup": "session.cleanup('word-count')",
    "Session.logs": "session.logs(n=5)",
    "Session.master": "session.master",
    "Session.files": "session.files.names()",
    "Session.close": "session.close()",
    "Application.versions": "[version.number for version in app.versions]\n|[1]",
    "Application.status": "app.status\n|'running'",
    "Application.standing": "app.standing",
    "Application.log": "app.log",
    "Application.outdated": "app.outdated\n|False",
    "Application.error": "app.error is None\n|True",
    "Application.reports": "app.reports.records\n|5",
    "Application.metrics": "app.metrics.total('records-consumed-total')",
    "Application.node_rates": "app.node_rates()",
    "Application.bootstrap_servers": "app.bootstrap_servers == session.bootstrap_servers\n|True",
    "Application.describe": "print(app.describe())\n|Topologies:\n|   Sub-topology: 0\n|    Source: words (topics: [words])\n|...",
    "Application.picture": "picture = app.picture()",
    "Application.store": "app.store('counts').get('a')\n|2",
    "Application.stores": "sorted(app.stores)\n|['counts']",
    "Application.sql": "app.sql('SELECT key, value FROM counts ORDER BY key').fetchall()\n|[('a', 2), ('b', 3)]",
    "Application.generation": "app.generation >= 1\n|True",
    "Application.start": "app.start() is app\n|True",
    "Application.resume": "app.resume().status\n|'running'",
    "Application.changes": "app.changes() is None\n|True",
    "Application.wait": "app.wait(60)\n|True",
    "Application.remaining": "app.remaining()\n|0",
    "Application.edit": "plan = app.edit(builder.replace('long', lambda key, word: len(word) > 1))\nplan.applied\n|True",
    "Application.rollback": "plan = app.rollback()\napp.versions[-1].number\n|3",
    "Application.pause": "app.pause().status\n|'paused'",
    "Application.stop": "app.stop().status\n|'stopped'",
}
