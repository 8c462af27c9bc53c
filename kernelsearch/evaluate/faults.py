"""What a launch can do wrong, and what cannot be told here."""


class Unsupported(Exception):
    """An operation or a form that is not evaluated here."""


class Fault(Exception):
    """What a launch does wrong, in one sentence, at a line of the kernel's file (0 if unknown)."""

    def __init__(self, reason: str, line: int = 0) -> None:
        super().__init__(reason)
        self.line = line


class OutOfBounds(Fault):
    """Lanes lie outside of every buffer."""


class Race(Fault):
    """Two programs of a launch touched one element, and nothing decides their order."""


class EndlessLoop(Fault):
    """A loop never ends here."""
