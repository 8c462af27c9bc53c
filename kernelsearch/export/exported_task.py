"""One task of a package: its file as examined, the kernels that were chosen for it, and its public name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from kernelsearch.core.types import Config, config_key
from kernelsearch.export.choose import TaskChoice
from kernelsearch.export.examine import ExaminedTask
from kernelsearch.export.launches import Site
from kernelsearch.kernel.source import Kernel


@dataclass(frozen=True)
class ExportedTask:
    """One task of a package: the kernels chosen for it, and its file as examined."""

    chosen: TaskChoice
    examined: ExaminedTask

    @cached_property
    def name(self) -> str:
        """The public function's or class's: the task's name, but that of the user's own where Inductor's kernels were
        added to a file (`kernelsearch seed`). A file's name such as `33-norm` becomes `task_33_norm`."""
        e, name = self.examined, self.chosen.name
        if e.task.is_seeded and e.task.forward is None:
            own = e.reference
            name = name.removesuffix("_seeded") if own in ("Model", "reference") else own
        name = re.sub(r"\W", "_", name)
        return f"task_{name}" if name[0].isdigit() else name

    def is_gradient_of(self, other: ExportedTask) -> bool:
        """Whether its results are the gradients of the other's, each a tensor of its own."""
        forward, task = self.examined.task.forward, other.examined.task
        files = [task.path.resolve(), task.path.resolve().with_name(f"{task.name}.py")]
        return forward is not None and not forward.gradient.inplace and forward.path.resolve() in files

    @property
    def folder(self) -> str:
        return f"_{self.name}"

    @cached_property
    def seed(self) -> Kernel:
        return Kernel.parse(self.examined.facts.seed)

    @cached_property
    def seed_config(self) -> Config:
        """The config of the task's own kernel: the best of its own list where it was tuned, on the first device."""
        seeds = self.chosen.seeds
        tuned = next((seeds[device]["config"] for device in sorted(self.chosen.devices) if device in seeds), None)
        return tuned or self.examined.facts.config

    @cached_property
    def kernels(self) -> dict[str, Kernel]:
        """All kernels that the package holds by digest, the seed among them."""
        found = {f.digest: f.kernel for f in self.chosen.found if f.digest != self.seed.digest}
        return {self.seed.digest: self.seed, **dict(sorted(found.items()))}

    def module_of(self, digest: str) -> str:
        return f"{'seed' if digest == self.seed.digest else 'kernel'}_{digest[:8]}"

    @property
    def launchers(self) -> list[tuple[str, str]]:
        """(Digest, module of the launcher) of kernels that leave out fills of the launcher."""
        return [(digest, f"task_{digest[:8]}") for digest, kernel in self.kernels.items() if kernel.unfilled]

    def configs_of(self, digest: str) -> list[Config]:
        """All configs that the package may launch a kernel with."""
        configs = [f.config for f in self.chosen.found if f.digest == digest]
        if digest == self.seed.digest:
            configs.append(self.seed_config)
        return [dict(c) for _, c in sorted({config_key(c): c for c in configs}.items())]

    def sites_of(self, digest: str) -> dict[str, tuple[Site, tuple[str, ...]]]:
        """The sites that a kernel redefines, with the functions that it launches there in order."""
        kernel, names = self.kernels[digest], self.examined.facts.sites
        steps = ((s, kernel.steps_at(s.name, names)) for s in self.examined.sites)
        return {site.name: (site, own) for site, own in steps if own is not None}
