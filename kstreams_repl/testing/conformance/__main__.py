"""`python -m kstreams_repl.testing.conformance FILE...`"""

from kstreams_repl.testing.conformance.main import main

main()
