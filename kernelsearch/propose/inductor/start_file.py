"""Writes the kernels of another decision of Inductor's as a kernel file for the same launcher: one more start."""

from __future__ import annotations

import re

from kernelsearch.propose.analysis.device_functions import find_helpers
from kernelsearch.propose.inductor.module_text import KernelRun, ModuleText
from kernelsearch.propose.inductor.task_file import InductorSeed, list_configs, list_imports, read_seed, write_space


def write_start(seed: InductorSeed, other: InductorSeed) -> str:
    """The kernels in which the other differs; empty where none does, or where its launcher is another one.

    Raises NotConvertible.
    """
    (module, kernels), (other_module, others) = read_seed(seed)[:2], read_seed(other)[:2]
    short = {old: kernel.name for old, kernel in (*kernels.items(), *others.items())}
    if _list_steps(module, short) != _list_steps(other_module, short):
        return ""
    own = {kernel.name: kernel for kernel in kernels.values()}
    changed = {old: k for old, k in others.items() if own[k.name].functions != k.functions}
    if not changed:
        return ""
    configs = {old: list_configs(kernel, other.configs[old]) for old, kernel in changed.items()}
    args, config, texts = dict[str, dict[str, str]](), dict[str, int](), dict[str, str]()
    for old, kernel in changed.items():
        prefix = f"{kernel.name}." if len(kernels) > 1 else ""
        config |= {prefix + name: value for name, value in configs[old][0].items()}
        texts |= kernel.functions
        for block, length in kernel.whole.items():  # under a name of its own, or a config of the loop would set it
            new = block.replace("BLOCK", "WHOLE")
            texts[kernel.name] = re.sub(rf"\b{block}\b", new, texts[kernel.name])
            args.setdefault(kernel.name, {})[new] = f"next_power_of_2({length})"
    code = "\n\n\n".join(texts.values())
    spec = [f"ARGS = {args}"] * bool(args) + [write_space(changed, configs, len(kernels) > 1), f"CONFIG = {config}"]
    return "\n\n\n".join([f"{list_imports(code)}\n\n" + "\n".join(spec), *find_helpers(code), code]) + "\n"


def _list_steps(module: ModuleText, short: dict[str, str]) -> list[object]:
    """What the host does, with the kernels under their short names."""
    grids = {short[name]: grid for name, grid in module.grids.items()}
    steps = [(short[s.kernel], s.arguments) if isinstance(s, KernelRun) else s for s in module.steps]
    return [grids, module.arguments, module.sizes, module.results, *steps]
