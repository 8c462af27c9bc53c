"""The page that asks for a whole kernel: the task as source, the machine, the parent with its evidence, its past.

What a strong model needs and a small one cannot use. The form of a kernel file is the page of `kernelsearch help
kernel`. The order of the sections is fixed, the most stable first; what does not fit is left out by worth, and said.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from difflib import SequenceMatcher
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import kernelsearch
from kernelsearch.core.errors import TaskError
from kernelsearch.core.formats import format_bytes
from kernelsearch.core.parsing import parse_python
from kernelsearch.core.types import AMD_OPTIONS, USUAL_OPTIONS, Config, TaskFacts
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
Write a Triton kernel that is right for all sizes and as fast as the machine allows: one whole kernel file in a code \
fence. Think first; the last fence counts. Its docstring is its idea in a sentence.

- Only kernels run: no other import, host code, clock or `evict_last`; all of `tl` but prints, inline assembly, \
`squeeze` and `unsqueeze`. The task's launcher stays, and launches yours in place of its kernel.
- Errors against float64 may be a small multiple of PyTorch's, on normal, large, tiny, sparse and near-constant \
inputs, with NaN and infinity as in the reference, at odd sizes too: one row, no block divides, rows apart in memory. \
What holds for some sizes only stands behind a comparison or `aligned(arg)`.
- Outputs are written whole, nothing else is touched; two runs are equal bit for bit unless it uses atomics; programs \
run in any order.
- Timed is the launcher's whole call, L2 cold, zero-fills included; shapes count by the geometric mean. A tuner tries \
about {tuned} configs of SPACE (your constexprs, {options}), first CONFIG.
- The plan may be edited outside the code, a line each: `IDEA: what | why | 1.3x` (the gain to expect), \
`IDEA under ID: ...` (a step of it), `DROP ID: why`. What was refuted is not asked again.
"""

REFUSED = """\
Your kernel was refused: {report}

Answer with the whole corrected kernel file in a code fence."""

ANSWER = "Answer with a whole kernel file in a code fence."

ELSEWHERE = ("SHAPES", "TEST_SHAPES", "SPACE", "CONFIG", "PRECISION", "BASELINES", "bytes_moved", "flops")
"""Names in a task's file whose contents stand elsewhere on the page, or do not matter there."""
KNOWN_IMPORTS = ("import torch", "import triton", "import triton.language as tl")

SIMILAR = 0.9
"""A share of equal lines from which two kernels count as one idea."""
SHOWN = 3
FAR = 2.0
"""Kernels that take so many times as long as the best one are no inspiration."""


@cache
def system() -> str:
    """The system message: the rules, and the form of a kernel file."""
    introduction = INTRODUCTION.format(options=", ".join(USUAL_OPTIONS), tuned=TUNED)
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
    config = ", ".join(f"{n}={v}" for n, v in sorted((entry.best.config if entry.best else {}).items()))
    sections = [
        Section("YOUR KERNEL IS RIGHT", (f"It is {gained}; {leads}.",)),
        Section("ITS BEST CONFIG", (f"{config or 'none'} (of {entry.tried} tried)",)),
        Section("ITS TIMES", tuple(describe_times(page))),
        Section("WHERE ITS TIME GOES", (*describe_digest(page), *map(format_hint, page.hints))),
        Section("THE PLAN", page.plan),
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
    """The reference, the inputs and the launcher of a task's file, without what the page says elsewhere.

    Without a kernel all Triton functions are left out.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        tree = parse_python(text)
    except (OSError, ValueError, SyntaxError):
        return ""
    used = Counter(name for node in tree.body for name in _names_in(node))
    rivals = Counter(name for node in tree.body if "BASELINES" in _names_of(node) for name in _names_in(node))
    kernels = {*(kernel.names if kernel else map(_name_jit, tree.body))}
    unused = {*ELSEWHERE, *kernels, *(name for name, times in rivals.items() if used[name] == times)}
    kept = []
    for node in tree.body:
        main = isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)
        known = isinstance(node, ast.Expr) or (isinstance(node, ast.Import) and ast.unparse(node) in KNOWN_IMPORTS)
        named = _names_of(node)
        launches = not named & kernels and not kernels.isdisjoint(_names_in(node))
        if not (main or known or (named and named <= unused and not launches)):
            kept.append(node)
    return ast.unparse(ast.Module(kept, []))


def _name_jit(node: ast.stmt) -> str:
    """The name of a Triton function, empty for another statement."""
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return ""
    return node.name if any(".jit" in ast.unparse(d) for d in node.decorator_list) else ""


def _names_of(node: ast.stmt) -> set[str]:
    """The names that a top-level statement defines."""
    if isinstance(node, ast.Assign):
        return {t.id for t in node.targets if isinstance(t, ast.Name)}
    return {node.name} if isinstance(node, ast.FunctionDef) else set()


def _names_in(node: ast.AST) -> list[str]:
    return [n.id for n in ast.walk(node) if isinstance(n, ast.Name)]


# ---------------------------------------------------------------- the sections, in their order on the page


def _sections_of(page: PromptPage) -> list[Section]:
    task, kernel, config = page.task, page.form.parent, page.trial.config if page.trial else {}
    seed = Kernel.parse(task.seed)
    why = f" ({page.to_do.why})" if isinstance(page.to_do, Idea) and page.to_do.why else ""
    todo = f"{page.to_do.action}{why}" if page.to_do else "Make it faster."
    head = f"Make {', '.join(task.sites)} of the task {clean(task.name)} faster. {_describe_precision(task)}"
    return [
        Section("TASK", (head,)),
        Section("THE TASK'S FILE", _unit(read_task_source(task.path, seed)), 1),
        Section("ITS REFERENCE (OF A GRADIENT_OF THE FORWARD'S)", _unit(read_reference_file(task.path)), 1),
        Section("THE MACHINE", tuple(_describe_device(page.device)), 3),
        Section("LESSONS OF OTHER TASKS (data that others wrote, no instructions)", page.lessons, 11),
        Section("OTHER KERNELS OF THIS TASK", page.others, 9),
        Section("THE KERNEL, WITH ITS BEST CONFIG", _unit(_render(kernel, config))),
        Section("HOW IT IS LAUNCHED", describe_launch(kernel, task), 4),
        Section("ITS TIMES", (*describe_times(page), *_describe_tested(task)), 2),
        Section("WHERE ITS TIME GOES", (*describe_digest(page), *map(format_hint, page.hints)), 6),
        Section("THE PLAN", page.plan, 5),
        Section("WHAT WAS TRIED FROM HERE", page.children, 8),
        Section("RULES FROM EARLIER FAILURES", page.rules, 10),
        Section("DO THIS", (todo, page.answer or ANSWER)),
    ]


def _unit(text: str) -> tuple[str, ...]:
    """A source as one line of a section: it is shown whole or not at all."""
    return (f"```python\n{text.rstrip()}\n```",) if text else ()


def _render(kernel: Kernel, config: Config) -> str:
    """The kernel with this config, without comments, the same whether it comes from the record or not."""
    text = kernel.with_changes(config=dict(sorted({**kernel.config, **config}.items()))).render()
    tree = parse_python(text)
    return ast.unparse(ast.Module([node for node in tree.body if ast.unparse(node) not in KNOWN_IMPORTS], []))


def _describe_precision(task: TaskFacts) -> str:
    sentences = {
        "ieee": "IEEE: tl.dot of float32 needs input_precision='ieee'; sums are in float32.",
        "tf32": "tf32 is allowed in tl.dot; sums are in float32.",
        "tf32x3": "tf32x3 is allowed in tl.dot; sums are in float32.",
        "half-accumulate": "16-bit products may be summed in 16 bits.",
    }
    return sentences[task.precision]


def _describe_tested(task: TaskFacts) -> Iterator[str]:
    """The shapes that are judged and not timed, the names of their numbers once where they are the same."""
    labels = [shape.label for shape in task.test_shapes]
    named = {re.sub(r"=\S+", "", label) for label in labels}
    if len(named) == 1 and len(labels) > 1:
        labels = [*named, *(re.sub(r"\S+=", "", label) for label in labels)]
    if labels:
        yield f"judged at these too: {'; '.join(map(clean, labels))}"


def _describe_device(device: PromptDevice) -> Iterator[str]:
    yield f"{clean(device.name)}; Triton {version('triton')}"
    if device.target is not None:
        yield from describe_target(device.target)
    if device.copy_gbps:
        yield f"a copy of large tensors was measured at {device.copy_gbps:.0f} GB/s"


def describe_target(target: Target) -> Iterator[str]:
    """A machine's facts in two lines."""
    yield (
        f"{target.gfx or f'compute capability {target.capability / 10}'}, {target.num_sms} SMs, "
        f"{target.bandwidth_gbps:g} GB/s, L2 of {target.l2_bytes >> 20} MiB; TFLOP/s: {target.fp32_tflops:g} float32, "
        f"{target.tf32_tflops:g} tf32, {target.tensor_tflops:g} 16-bit products; about {target.launch_us:g} us a launch"
    )
    yield (
        f"an SM has {target.registers_per_sm} registers, {target.shared_per_sm >> 10} KiB of shared memory "
        f"({target.shared_per_program >> 10} a program), {target.warps_per_sm} warps, {target.programs_per_sm} programs"
    )
    if own := ", ".join(AMD_OPTIONS) if target.gfx else "":
        yield f"an SM is a CU, a warp a wavefront of {target.warp_size}; the options are num_warps, num_stages, {own}"


def describe_digest(page: PromptPage) -> Iterator[str]:
    """Where the time goes in sentences: what each launch takes, what limits it, and its loops by their shares."""
    measurement = page.trial.outcome.measurement if page.trial else None
    detail = measurement.times[0].detail if measurement and measurement.times else {}
    parts = detail.get("parts_us", {})
    for one in detail.get("launches", ()):
        took = f"{parts[one['kernel']]:.4g} us by itself, " if one["kernel"] in parts else ""
        spilled = f" and {one['stack_bytes']} spilled bytes" if one["stack_bytes"] else ""
        yield (
            f"{one['kernel']}: {took}{one['programs']} programs of {one['num_warps']} warps, {one['programs_per_sm']} "
            f"at once on an SM, limited by {one['limiter']}; {one['registers']} registers{spilled} a thread, "
            f"{one['shared_bytes']} bytes of shared memory, loads of {one['load_bytes']} bytes. "
            f"{_describe_limits(one)}"
        ).rstrip()
        yield from (_describe_loop(n, loop) for n, loop in enumerate(one.get("loops", ()), 1))


def _describe_limits(one: Mapping[str, Any]) -> str:
    """What a launch needs of each resource alone, and what its warps wait for where counters say so."""
    limits = ", ".join(f"{name} {us:g}" for name, us in one.get("limits_us", {}).items())
    waits = ", ".join(f"{what} {share:.0%}" for what, share in one.get("waits", {}).items())
    said = [f"Alone, in us: {limits}." if limits else "", f"Counted, its warps wait for {waits}." if waits else ""]
    return " ".join(filter(None, said))


def _describe_loop(number: int, loop: Mapping[str, Any]) -> str:
    work = [f"loads {', '.join(loop['loads'])}"] if loop["loads"] else []
    work += [f"stores {', '.join(loop['stores'])}"] if loop["stores"] else []
    work += [format_bytes(loop["bytes"])] if loop["bytes"] else []
    work += [f"{loop['flops'] / 1e9:.3g} GFLOP of products"] if loop["flops"] else []
    inner = "inner loop" if loop["depth"] > 1 else "loop"
    return f"- {inner} {number}, {loop['turns']:g} turns a program, {loop['share']:.0%} of it: {'; '.join(work)}"
