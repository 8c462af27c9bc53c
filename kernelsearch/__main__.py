"""`python -m kernelsearch` is `kernelsearch`."""

from kernelsearch.cli import main

main(prog_name="kernelsearch")
