"""Run ``python -m kstreams_repl.cli``, as ``./kstreams`` does."""

from __future__ import annotations

import sys

from kstreams_repl.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
