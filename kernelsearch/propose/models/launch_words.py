"""The launch of a kernel in words for a prompt: its arguments at a timed shape, its grid, its computed arguments."""

from __future__ import annotations

from collections.abc import Iterator

from kernelsearch.core.types import LaunchFact, TaskFacts, TensorFact
from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.models.repair import clean

LONGEST = 200


def describe_launch(kernel: Kernel, task: TaskFacts) -> tuple[str, ...]:
    """Lines on what a kernel's text does not say, the most useful first; empty where no launch is known."""
    trace = next((task.traces[s.key] for s in task.shapes if s.key in task.traces), None)
    lines = list(_computed_lines(kernel))
    sites: set[str] = set()
    for launch in trace.launches if trace else ():
        steps = kernel.steps_at(launch.site, task.sites)
        if steps and launch.site not in sites:
            sites.add(launch.site)
            lines += _site_lines(kernel, launch, steps)
    return tuple(clean(line, LONGEST) for line in lines)


def _computed_lines(kernel: Kernel) -> Iterator[str]:
    for function, given in kernel.args.items():
        of = f" of {function}" if len(kernel.entries) > 1 else ""
        yield from (f"{name}{of} is computed as {text}" for name, text in given.items())
    for name, (dtype, shape, *zeroed) in kernel.scratch.items():
        yield f"{name} points to scratch of {dtype} {shape}{', zeroed' if zeroed else ''}"
    for name, value in kernel.init.items():
        yield f"what {name} points to starts at {value}"


def _site_lines(kernel: Kernel, launch: LaunchFact, steps: tuple[str, ...]) -> Iterator[str]:
    if len(steps) > 1:
        yield f"launched in this order: {', '.join(steps)}"
    for step in steps:
        if step in kernel.grid:
            yield f"grid of {step}: {kernel.grid[step]}"
        else:
            own = f"{launch.grid} at the first timed shape" if launch.grid else "a function of its config"
            yield f"grid of {step}: the launcher's own, {own}"
    params = {p for f in kernel.functions if f.name in steps for p in f.params if p not in f.constexprs}
    tensors = [
        f"{n}: {v.dtype} {list(v.shape)}" for n, v in launch.args.items() if n in params and isinstance(v, TensorFact)
    ]
    numbers = [f"{n}={v}" for n, v in launch.args.items() if n in params and isinstance(v, (int, float))]
    if tensors:
        yield f"at the first timed shape {'; '.join(tensors)}"
    if numbers:
        yield f"and {', '.join(numbers)}"
