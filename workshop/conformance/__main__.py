"""`python -m workshop.conformance FILE...`"""

from workshop.conformance.main import main

main()
