"""The page that asks for a whole kernel: the task as source, the machine, the parent with its evidence, its past.

What a strong model needs and a small one cannot use. The form of a kernel file is the page of `kernelsearch help
kernel`. The order of the sections is fixed, the most stable first; what does not fit is left out by worth, and said.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from difflib import SequenceMatcher
from functools import cache
from importlib.metadata import version
from pathlib import Path

import kernelsearch
from kernelsearch.core.errors import TaskError
from kernelsearch.core.parsing import parse_python
from kernelsearch.core.types import LAUNCH_OPTIONS, Config, TaskFacts
from kernelsearch.kernel.language import FUNCTIONS
from kernelsearch.kernel.source import Kernel
from kernelsearch.kernel.targets import Target
from kernelsearch.propose.history import TUNED, Entry, History
from kernelsearch.propose.models.ideas import Idea
from kernelsearch.propose.models.prompt import PromptDevice, PromptPage, describe_launch, describe_times, format_hint
from kernelsearch.propose.models.repair import clean
from kernelsearch.propose.models.sections import FittedPage, Section, fit_sections, join_sections
from kernelsearch.tasks.module import find_companion, find_forward

FORM = Path(kernelsearch.__file__).parent / "kernel" / "kernel_file.md"
"""One page on how a kernel file is written, with an example of two kernels and scratch."""

INTRODUCTION = """\
You write Triton kernels: right for every size of their inputs, and as fast as the machine allows. You are shown a \
task (its PyTorch reference and the launcher), a kernel of it with its times, what was tried, and one thing to do. \
Think as long as you like, then answer with one whole kernel file in a code fence. The last fenced kernel counts, \
prose around it is ignored. Begin the file with a docstring of one sentence that says its idea.

What a referee asks of it:
- Only the kernels run. Any other import, host code, printing, inline assembly, clock or `evict_last` is refused. The \
launcher of the task stays as it is: it allocates the outputs and launches the task's kernel by name with its \
arguments. Yours takes its place, takes those of the arguments that it wants (by name) and, through GRID, ARGS, \
SCRATCH, INIT and LAUNCHES, whatever else it needs.
- It is compared with the reference in float64. Its errors may be a small multiple of those of PyTorch itself, on \
normal, large, tiny, sparse and nearly constant inputs, with NaN and infinity where the reference has them; also at \
odd sizes: one row, sizes that no block divides, rows that lie apart in memory. Nothing may hold only for the timed \
sizes, unless a comparison or `aligned(arg)` chooses another way for the rest.
- Every element of the outputs is written; nothing is read or written outside of the tensors; inputs stay as they are; \
two runs are equal bit for bit, unless it uses atomics. Programs of one launch run in any order.
- The time is that of the launcher's whole call with a cold L2, all kernels and zero-fills in it; several timed shapes \
count by the geometric mean of their gains.

SPACE lists a few values of each number that matters (tiles, splits) and of the launch options {options}: a tuner \
tries about {tuned} configs before the kernel is compared with others, first CONFIG: the one you expect to be best.
"""

REFUSED = """\
Your kernel was refused: {report}

Answer with the whole corrected kernel file in a code fence."""

ANSWER = "Answer with one whole kernel file in a code fence."

SIMILAR = 0.9
"""A share of equal lines from which two kernels count as one idea."""
SHOWN = 3
FAR = 2.0
"""Kernels that take so many times as long as the best one are no inspiration."""


@cache
def system() -> str:
    """The system message: the rules, and the form of a kernel file."""
    introduction = INTRODUCTION.format(options=", ".join(LAUNCH_OPTIONS), tuned=TUNED)
    return f"{introduction}\n{FORM.read_text(encoding='utf-8').rstrip()}"


def write_page(page: PromptPage, count: Callable[[str], int], budget: int) -> FittedPage:
    """The page within a budget of tokens, the system message included. Raises TooLong."""
    return fit_sections(_sections_of(page), system(), count, budget)


def write_report(page: PromptPage, entry: Entry, history: History, idea: Idea) -> str:
    """What is said to an accepted kernel: its gain, its config, where its time goes, and the next thing to do."""
    above = history.get(entry.parent)
    known = {"the kernel that it was made from": above.score if above else None, "the seed as it came": 1.0}
    gained = " and ".join(f"{score / entry.score:.2f}x as fast as {name}" for name, score in known.items() if score)
    best = min(e.score for e in history.entries.values())
    leads = "no kernel is faster so far" if entry.score <= best else f"the fastest is {entry.score / best:.2f}x as fast"
    config = ", ".join(f"{n}={v}" for n, v in sorted(entry.best.config.items()))
    sections = [
        Section("YOUR KERNEL IS RIGHT", (f"It is {gained}; {leads}.",)),
        Section("ITS BEST CONFIG", (f"{config or 'none'} (of {entry.tried} tried)",)),
        Section("ITS TIMES", tuple(describe_times(page))),
        Section("WHERE ITS TIME GOES", tuple(format_hint(h) for h in page.hints)),
        Section("WHAT IT TAKES OF THE MACHINE", tuple(_describe_resources(page))),
        Section("OTHER KERNELS OF THIS TASK", page.others),
        Section("DO THIS", (idea.action, ANSWER)),
    ]
    return join_sections(sections)


def choose_others(history: History, parent: str, most: int = SHOWN) -> tuple[Entry, ...]:
    """The best kernels of the run that differ from this parent and from each other, the fastest first; not the seed."""
    ranked = sorted((e for e in history.entries.values() if e.best and e.parent), key=lambda e: (e.score, e.number))
    ranked = [e for e in ranked if e.score <= FAR * ranked[0].score]
    chosen: list[Entry] = []
    above = history.get(parent)
    texts = [above.kernel.code.splitlines()] if above else []
    for entry in ranked[:24]:
        lines = entry.kernel.code.splitlines()
        if len(chosen) < most and all(SequenceMatcher(None, t, lines, False).ratio() < SIMILAR for t in texts):
            chosen.append(entry)
            texts.append(lines)
    return tuple(chosen)


def show_kernel(entry: Entry) -> str:
    """One of the other kernels as the page shows it."""
    text = _render(entry.kernel, entry.best.config if entry.best else {}).rstrip()
    return f"{1 / entry.score:.2f}x the seed: {clean(entry.action or entry.edit)}\n```python\n{text}\n```"


def read_reference_file(path: str) -> str:
    """What a file beside a task's says of its reference, the forward of a gradient for one; empty without any."""
    with suppress(TaskError):
        return read_task_source(str(find_forward(Path(path)) or find_companion(Path(path))))
    return ""


def read_task_source(path: str, kernel: Kernel | None = None) -> str:
    """The task's file without its kernels, which are shown apart: reference, inputs, shapes, limits and launcher."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        tree = parse_python(text)
    except (OSError, ValueError, SyntaxError):
        return ""
    lines = text.split("\n")
    for node in reversed(tree.body):
        decorators = getattr(node, "decorator_list", [])
        jit = decorators and (node.name in kernel.names if kernel else ".jit" in "".join(map(ast.unparse, decorators)))
        if jit or (isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)):
            first = min([node.lineno, *(d.lineno for d in decorators)])
            lines[first - 1 : node.end_lineno] = []
    return re.sub(r"\n{4,}", "\n\n\n", "\n".join(lines)).strip()


# ---------------------------------------------------------------- the sections, in their order on the page


def _sections_of(page: PromptPage) -> list[Section]:
    task, kernel, config = page.task, page.form.parent, page.trial.config if page.trial else {}
    seed = Kernel.parse(task.seed)
    todo = page.to_do.action if page.to_do else "Make it faster."
    return [
        Section("TASK", (f"Make {', '.join(task.sites)} of the task {clean(task.name)} faster.",)),
        Section("THE TASK'S FILE, WITHOUT ITS KERNEL", _unit(read_task_source(task.path, seed)), 1),
        Section("ITS REFERENCE (OF A GRADIENT_OF THE FORWARD'S)", _unit(read_reference_file(task.path)), 1),
        Section("PRECISION", (_describe_precision(task),)),
        Section("SHAPES", tuple(_describe_shapes(task)), 2),
        Section("THE MACHINE", tuple(_describe_device(page.device)), 3),
        Section("FUNCTIONS OF tl THAT MAY BE USED", (", ".join(FUNCTIONS),), 12),
        Section("OTHER KERNELS OF THIS TASK", page.others, 9),
        Section("THE KERNEL, WITH ITS BEST CONFIG", _unit(_render(kernel, config))),
        Section("HOW IT IS LAUNCHED", describe_launch(kernel, task), 4),
        Section("ITS TIMES", tuple(describe_times(page)), 5),
        Section("WHERE ITS TIME GOES", tuple(format_hint(h) for h in page.hints), 6),
        Section("WHAT IT TAKES OF THE MACHINE", tuple(_describe_resources(page)), 7),
        Section("WHAT WAS TRIED FROM HERE", page.children, 8),
        Section("WHAT WAS TRIED ELSEWHERE", page.elsewhere, 10),
        Section("RULES FROM EARLIER FAILURES", page.rules, 11),
        Section("DO THIS", (todo, ANSWER)),
    ]


def _unit(text: str) -> tuple[str, ...]:
    """A source as one line of a section: it is shown whole or not at all."""
    return (f"```python\n{text.rstrip()}\n```",) if text else ()


def _render(kernel: Kernel, config: Config) -> str:
    """The kernel with this config, in the same order whether it comes from the record or not."""
    return kernel.with_changes(config=dict(sorted({**kernel.config, **config}.items()))).render()


def _describe_precision(task: TaskFacts) -> str:
    sentences = {
        "ieee": "float32 arithmetic is IEEE: tl.dot of float32 needs input_precision='ieee', and sums are in float32.",
        "tf32": "tf32 is allowed in tl.dot; sums are in float32.",
        "tf32x3": "tf32x3 is allowed in tl.dot; sums are in float32.",
        "half-accumulate": "16-bit products may be summed in 16 bits.",
    }
    return sentences[task.precision]


def _describe_shapes(task: TaskFacts) -> Iterator[str]:
    for shape in task.shapes:
        known = {"bytes": shape.bytes_moved, "flops": shape.flops}
        least = ", ".join(f"{n:.4g} {name}" for name, n in known.items() if n)
        yield f"timed: {clean(shape.label)}" + (f" (at least {least})" if least else "")
    for shape in task.test_shapes:
        yield f"tested only: {clean(shape.label)}"


def _describe_device(device: PromptDevice) -> Iterator[str]:
    yield f"{clean(device.name)}; Triton {version('triton')}"
    if device.target is not None:
        yield from describe_target(device.target)
    if device.copy_gbps:
        yield f"a copy of large tensors was measured at {device.copy_gbps:.0f} GB/s"


def describe_target(target: Target) -> Iterator[str]:
    """A machine's facts in two lines."""
    yield (
        f"compute capability {target.capability / 10}, {target.num_sms} SMs at {target.clock_ghz:g} GHz, "
        f"{target.bandwidth_gbps:g} GB/s by its datasheet, L2 of "
        f"{target.l2_bytes >> 20} MiB; {target.fp32_tflops:g} TFLOP/s float32, {target.tensor_tflops:g} of 16-bit and "
        f"{target.tf32_tflops:g} of tf32 products; about {target.launch_us:g} us a launch"
    )
    yield (
        f"an SM has {target.registers_per_sm} registers (at most 255 a thread), {target.shared_per_sm >> 10} KiB of "
        f"shared memory ({target.shared_per_program >> 10} a program), {target.warps_per_sm} warps, "
        f"{target.programs_per_sm} programs"
    )


def _describe_resources(page: PromptPage) -> Iterator[str]:
    measurement = page.trial.outcome.measurement if page.trial else None
    detail = measurement.times[0].detail if measurement and measurement.times else {}
    sms = f" ({page.device.target.num_sms} SMs)" if page.device.target else ""
    parts = detail.get("parts_us", {})
    for one in detail.get("launches", ()):
        took = f"{parts[one['kernel']]:.4g} us by itself, " if one["kernel"] in parts else ""
        yield (
            f"{one['kernel']}: {took}{one['programs']} programs of {one['num_warps']} warps, "
            f"{one['programs_per_sm']} at once on an SM{sms}, limited by {one['limiter']}; "
            f"{one['registers']} registers and {one['stack_bytes']} spilled bytes a thread, "
            f"{one['shared_bytes']} bytes of shared memory; a load moves {one['load_bytes']} "
            "bytes a thread"
        )
