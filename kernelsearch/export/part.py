"""One task of a package: what was chosen of it, and its file as examined."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from kernelsearch.core.types import Config, config_key
from kernelsearch.export.choose import Chosen, Found
from kernelsearch.export.examine import Examined, seed_kernel
from kernelsearch.export.launches import Site
from kernelsearch.kernel.source import Kernel


@dataclass(frozen=True)
class Part:
    """One task of a package; autotune says that its configs are tuned at the user's first call.

    as_whole are the kernels by digest for which `@triton.autotune` is too narrow, with the reason: of these the package
    itself times whole calls.
    """

    chosen: Chosen
    examined: Examined
    autotune: bool = False
    as_whole: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.chosen.name

    @property
    def folder(self) -> str:
        return f"_{self.name}"

    @cached_property
    def seed(self) -> Kernel:
        return seed_kernel(self.examined)

    @cached_property
    def kernels(self) -> dict[str, Kernel]:
        """All kernels that are shipped by digest, the seed among them."""
        found = {f.digest: f.kernel for f in self.chosen.found}
        return {self.seed.digest: self.seed, **dict(sorted(found.items()))}

    def tuned(self, digest: str) -> bool:
        """Whether a kernel's config is chosen by `@triton.autotune` at the user's first call."""
        return self.autotune and digest in {f.digest for f in self.chosen.found} and digest not in self.as_whole

    def module_of(self, digest: str) -> str:
        return f"{'seed' if digest == self.seed.digest else 'kernel'}_{digest[:8]}"

    def configs_of(self, digest: str) -> list[Config]:
        configs = [c for f in self.chosen.found if f.digest == digest for c in (f.config, *self._others(f))]
        if digest == self.seed.digest:
            configs.append(self.examined.facts.config)
        return [dict(c) for _, c in sorted({config_key(c): c for c in configs}.items())]

    def choices(self, found: Found, shape: str) -> list[Config]:
        """The configs of a shape that the package itself chooses from at its first call, the record's best first."""
        configs = (
            [found.config, *found.others.get(shape, ())] if self.autotune and found.digest in self.as_whole else []
        )
        unique = list({config_key(c): dict(sorted(c.items())) for c in configs}.values())
        return unique if len(unique) > 1 else []

    def _others(self, found: Found) -> list[Config]:
        return [c for shape in found.others for c in self.choices(found, shape)]

    def sites_of(self, digest: str) -> dict[str, tuple[Site, tuple[str, ...]]]:
        """The sites that a kernel redefines, with the functions that it launches there in order."""
        kernel, names = self.kernels[digest], self.examined.facts.sites
        steps = {s.name: kernel.steps_at(s.name, names) for s in self.examined.sites}
        return {s.name: (s, steps[s.name]) for s in self.examined.sites if steps[s.name] is not None}

    def buckets(self, digest: str) -> list[tuple[str, Found]]:
        """(Shape key, candidate) of the timed shapes where a kernel is chosen, for autotuned launches."""
        pairs = {}
        for by_shape in self.chosen.devices.values():
            for shape, found in by_shape.items():
                if found.digest == digest:
                    pairs.setdefault(shape, found)
        return sorted(pairs.items())

    def table_key(self, digest: str, shape: str) -> str:
        return f"{digest} {shape}" if self.tuned(digest) else digest
