"""The command line: ``./kstreams COMMAND``.

`main` is the entry; `registry` names the commands and where each one lives, so that only the command asked for is imported.
Commands are thin: they read options and call the package.
"""
