"""The command line: ``./kstreams COMMAND``.

`main` is the entry point; `registry` lists the commands and their modules, so that only the requested command is imported.
Commands are thin: they read options and call the package.
"""
