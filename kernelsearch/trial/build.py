"""A candidate's binaries: past the gate, bound to the launches of the shapes, compiled."""

from __future__ import annotations

import contextlib

from kernelsearch.compile.build import Binary
from kernelsearch.core.types import Config, Verdict, Word, content_digest
from kernelsearch.kernel.launch import LaunchError, Specialisation
from kernelsearch.kernel.source import Kernel
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.once import Once
from kernelsearch.trial.rejection import Rejected
from kernelsearch.verify import gate


class Builder:
    """Raises Rejected for what the gate, the launch or a compiler refuses."""

    def __init__(self, bench: Bench, once: Once) -> None:
        self.bench, self.once = bench, once

    def gated(self, kernel: Kernel) -> None:
        if kernel.digest == self.bench.seed.digest:
            return  # the user's own; told apart by its canonical source
        verdict = self.once(f"gate/{content_digest(kernel.code)}", lambda: gate.check(kernel.render()))
        if not verdict.accepted:
            raise Rejected(verdict)

    def compiled(self, kernel: Kernel, config: Config, shapes: tuple[str, ...]) -> dict[str, Binary]:
        """The binaries that the launches of these shapes need, by `jobs.spec_key`."""
        return self.built(kernel, self._specs(kernel, config, shapes))

    def begin(self, kernel: Kernel, config: Config, shapes: tuple[str, ...]) -> None:
        """Begins to compile for these shapes, where there are compilers to spare; what is refused is said by `compiled`."""
        with contextlib.suppress(Rejected):
            self.bench.begin(kernel, self._specs(kernel, config, shapes))

    def _specs(
        self, kernel: Kernel, config: Config, shapes: tuple[str, ...]
    ) -> tuple[tuple[Specialisation, bool], ...]:
        try:
            bound = self.bench.bound(kernel, config, shapes)
            specs = [(s, b.of_seed) for fact, b in bound for s in b.specialisations(fact)]
        except LaunchError as error:
            raise Rejected(Verdict(Word.STATIC, "launch", str(error))) from None
        return tuple(dict.fromkeys(specs))

    def built(self, kernel: Kernel, specs: tuple[tuple[Specialisation, bool], ...]) -> dict[str, Binary]:
        binaries, verdict = self.bench.binaries(kernel, specs)
        if verdict is not None:
            raise Rejected(verdict)
        unsupported = next((b.unsupported for b in binaries.values() if b.unsupported), "")
        if unsupported:
            raise Rejected(Verdict(Word.COMPILE, "launch", unsupported))
        return binaries
