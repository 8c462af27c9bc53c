"""`python -m kernelsearch.cli` is `kernelsearch`."""

from kernelsearch.cli import main

main()
