"""The prompt page: a task, a kernel and its past for a model, within a budget of tokens.

The order of the parts is fixed, the most stable first, so that engines with a prefix cache read only the end anew.
Parts that do not fit are cut by worth. The kernel, the thing to do and the format always stay; then come times, the
launch, hints, earlier tries from here, rules from failures, the plan, the ready-made edits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from kernelsearch.core.formats import explain_hint
from kernelsearch.core.types import Hint, LaunchFact, ShapeFact, TaskFacts, TensorFact, Trial
from kernelsearch.kernel.source import Kernel
from kernelsearch.kernel.targets import Target
from kernelsearch.propose.edits import EDITS
from kernelsearch.propose.grammar import Grammar, WholeKernel
from kernelsearch.propose.history import Entry, History
from kernelsearch.propose.models.ideas import Idea
from kernelsearch.propose.models.repair import FailedAnswer, clean
from kernelsearch.propose.models.sections import FittedPage, Section, fit_sections

SYSTEM = """\
You make Triton kernels faster. You are shown one kernel with line numbers and one thing to do. You answer with an \
edit of that kernel and nothing else: no explanation, no code fence. The kernel must stay right for every size of its \
inputs, not only for those that are timed.

An answer is a few of these directives, line numbers ascending, and then END:
LINE 12          the statement that begins at line 12 becomes the indented lines that follow
BEFORE 12        the indented lines that follow are put before that statement
DELETE 12        the statement goes
GRID (expr,)     of a kernel whose programs loop: the launch grid becomes this expression over its arguments
SET NAME value   a constexpr or a launch option (num_warps, num_stages) gets this value
or instead of lines one ready-made edit by its name and variant:
EDIT name 1
END

New lines are indented as the statement was. A replaced assignment assigns the same name. Use only names that exist at \
that line, and of the new names at most two. Only functions of tl, with their own parameters."""

SAME = 0.0005
"""A log gain that is none."""
SEVERAL = "these are launches of the launcher: one hands on to the next what is in its tensors, never SCRATCH"
LONGEST_LAUNCH = 200
"""Characters of a line on the launch."""


@dataclass(frozen=True)
class PromptDevice:
    """The machine on the page, its facts for rooflines, and what was measured there.

    copy_gbps is its copy bandwidth; baselines are times of what users would run instead, in microseconds by the shape's
    key and the baseline's name. Both only where they are known.
    """

    name: str
    target: Target | None = None
    copy_gbps: float | None = None
    baselines: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class PromptPage:
    """The contents of the page of one parent.

    to_do is what the model is asked for: an idea, or an answer of its own to be repaired. trial is the parent's best
    trial, seed the seed's first; children are earlier tries from here, others the best
    other kernels of the run as files, rules short sentences. plan has the ideas for the task and what became of them,
    lessons what gained on tasks like it. answer says what is wanted, if not the usual.
    """

    form: Grammar | WholeKernel
    task: TaskFacts
    device: PromptDevice
    to_do: Idea | FailedAnswer | None = None
    trial: Trial | None = None
    seed: Trial | None = None
    hints: tuple[Hint, ...] = ()
    children: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    plan: tuple[str, ...] = ()
    lessons: tuple[str, ...] = ()
    answer: str = ""


def write_page(page: PromptPage, count: Callable[[str], int], budget: int) -> FittedPage:
    """The page within a budget of tokens, the system message included. Raises TooLong."""
    return fit_sections(_parts_of(page), SYSTEM, count, budget)


def describe_children(history: History, digest: str) -> tuple[str, ...]:
    """The earlier tries from a kernel: those that gained, then the refused ones, then those that lost."""
    children = history.children(digest)
    gained = sorted((e for e in children if e.best), key=lambda e: (e.score, e.number))
    refused = sorted((e for e in children if not e.best and e.refused), key=lambda e: -e.number)
    better = [e for e in gained if (history.gain(e) or 0.0) > 0]
    worse = [e for e in gained if (history.gain(e) or 0.0) <= 0]
    return tuple(_format_try(history, e) for e in (*better, *refused, *worse))


def describe_launch(kernel: Kernel, task: TaskFacts) -> tuple[str, ...]:
    """Lines on what a kernel's text does not say, the most useful first; empty where no launch is known."""
    trace = next((task.traces[s.key] for s in task.shapes if s.key in task.traces), None)
    lines = [*_computed_lines(kernel), *[SEVERAL] * (len(task.sites) > 1)]
    sites: set[str] = set()
    for launch in trace.launches if trace else ():
        steps = kernel.steps_at(launch.site, task.sites)
        if steps and launch.site not in sites:
            sites.add(launch.site)
            lines += _site_lines(kernel, launch, steps)
    return tuple(clean(line, LONGEST_LAUNCH) for line in lines)


# ---------------------------------------------------------------- the parts, in their order on the page


def _parts_of(page: PromptPage) -> list[Section]:
    task, form = page.task, page.form
    assert isinstance(form, Grammar)
    contract = {"ieee": "float32 arithmetic is IEEE", "tf32": "tf32 is allowed"}.get(task.precision, task.precision)
    head = f"Make {', '.join(task.sites)} of the task {task.name} faster on {page.device.name}. Precision: {contract}."
    config = page.trial.config if page.trial else {}
    failed = page.to_do if isinstance(page.to_do, FailedAnswer) else None
    parts = [
        Section("TASK", (clean(head),)),
        Section("KERNEL", tuple(form.numbered.splitlines())),
        Section("HOW IT IS LAUNCHED", describe_launch(form.parent, task), 2),
        Section("NEW NAMES", tuple(f"{name}: {kind}" for name, kind in form.fresh.items())),
        Section("ITS BEST CONFIG", (", ".join(f"{n}={v}" for n, v in sorted(config.items())),) if config else ()),
        Section("READY-MADE EDITS", () if failed else tuple(_edit_lines(form)), 7),
        Section("ITS TIMES", tuple(describe_times(page)), 1),
        Section("WHERE ITS TIME GOES", tuple(format_hint(h) for h in page.hints), 3),
        Section("WHAT WAS TRIED FROM HERE", page.children, 4),
        Section("THE PLAN", page.plan, 6),
        Section("RULES FROM EARLIER FAILURES", page.rules, 5),
    ]
    if failed:
        parts.append(Section("YOUR EDIT", tuple(failed.text.rstrip("\n").split("\n"))))
        parts.append(Section("WAS REFUSED", tuple(failed.report.split("\n"))))
        again = f"Correct that edit of the kernel above. It was to do this: {failed.action}"
        parts.append(Section("DO THIS", (again,)))
    elif page.to_do is not None:
        parts.append(Section("DO THIS", (f"{page.to_do.action} Implement only this change.",)))
    parts.append(Section("ANSWER", ("Directives and END, nothing else.",)))
    return parts


def _edit_lines(grammar: Grammar) -> Iterator[str]:
    """Lines on the typed edits that an answer may name, with their variants and summaries."""
    summaries = {e.name: e.summary for e in EDITS}
    for name, left in grammar.offered.items():
        whole = len(left) > 1 and len(left) == left[-1] - left[0] + 1
        numbers = f"{left[0]} to {left[-1]}" if whole else ", ".join(map(str, left))
        yield f"EDIT {name} {numbers}: {clean(summaries.get(name, ''), 100)}"


def describe_times(page: PromptPage) -> list[str]:
    """Lines on the times of a page's kernel, the seed and the baselines; the kind of evidence stands in the first."""
    lines = []
    own = page.trial.outcome.measurement if page.trial else None
    seed = page.seed.outcome.measurement if page.seed and page.seed != page.trial else None
    for shape in page.task.shapes:
        parts = []
        for name, measured in {"this kernel": own, "the seed as it came": seed}.items():
            time_us = measured.time_us(shape.key) if measured else None
            if time_us is not None:
                parts.append(f"{name} {time_us:.4g} us")
        known = sorted(page.device.baselines.get(shape.key, {}).items(), key=lambda one: one[1])
        parts += [f"{clean(name, 40)} {time_us:.4g} us" for name, time_us in known]
        best = roofline_us(shape, page.device.target)
        if best is not None:
            time_us = own.time_us(shape.key) if own else None
            facts = [f"{n:.3g} {u}" for u, n in (("B", shape.bytes_moved), ("FLOP", shape.flops)) if n]
            facts += [f"{100 * best / time_us:.0f} % reached"] if time_us else []
            parts.append(f"roofline {best:.4g} us ({', '.join(facts)})")
        if parts:
            lines.append(f"{clean(shape.label)}: {', '.join(parts)}")
    if lines and own:
        others = "; baselines confirmed" if page.device.baselines else ""
        lines[0] += f" ({own.evidence.value}{others})"
    return lines


def roofline_us(shape: ShapeFact, target: Target | None) -> float | None:
    """The least time in microseconds by a target's datasheet: bytes over bandwidth, or flops over the tensor peak."""
    if target is None or not (shape.bytes_moved or shape.flops):
        return None
    moved = (shape.bytes_moved or 0) / target.bandwidth_gbps / 1e3
    computed = (shape.flops or 0) / target.tensor_tflops / 1e6
    return max(moved, computed)


def format_hint(hint: Hint) -> str:
    """A finding in a line: its rule, at most what gain, why, and the change to make."""
    _, why, advice = explain_hint(hint, edits=False)
    named = f"{hint.name} ({hint.bottleneck})" if hint.name else hint.bottleneck
    gain = f", {1 / (1 - min(hint.lost, 0.99)):.2f}x at most (estimated)" if hint.lost else ""
    return clean(f"{named}{gain}. {why} Change: {advice}", 450)


def _format_try(history: History, entry: Entry) -> str:
    gain = history.gain(entry)
    if gain is not None and abs(gain) < SAME:
        return f"no change of its time: {_action_of(entry)}"
    if gain is not None:
        word = "gained" if gain > 0 else "lost"
        return f"{word} {100 * abs(gain):.1f} %: {_action_of(entry)}"
    why = clean(entry.refused.reason, 120) if entry.refused else "not timed yet"
    return f"refused ({why}): {_action_of(entry)}"


def _action_of(entry: Entry) -> str:
    return clean(entry.action or entry.edit, 140)


# ---------------------------------------------------------------- the launch in words


def _computed_lines(kernel: Kernel) -> Iterator[str]:
    for function, given in kernel.args.items():
        of = f" of {function}" if len(kernel.entries) > 1 else ""
        yield from (f"{name}{of} is computed as {text}" for name, text in given.items())
    for name, (dtype, shape, *zeroed) in kernel.scratch.items():
        yield f"{name} points to scratch of {dtype} {shape}{', zeroed' if zeroed else ''}"
    for name, (base, shape, strides, block, *_) in kernel.descriptors.items():
        yield f"{name} describes {base} as a tensor of shape {shape}, strides {strides}, in tiles of {block}"
    for name, value in kernel.init.items():
        start = "is not filled by the launcher" if value is None else f"starts at {value}"
        yield f"what {name} points to {start}"


def _site_lines(kernel: Kernel, launch: LaunchFact, steps: tuple[str, ...]) -> Iterator[str]:
    if len(steps) > 1:
        yield f"launched in this order: {', '.join(steps)}"
    for step in steps:
        if step in kernel.grid:
            yield f"grid of {step}: {kernel.grid[step]}"
        else:
            own = f"{launch.grid} at first" if launch.grid else "a function of its config"
            yield f"grid of {step}: the launcher's own, {own}"
    params = {p for f in kernel.functions if f.name in steps for p in f.params if p not in f.constexprs}
    tensors: dict[str, list[str]] = {}
    for name, value in launch.args.items():
        if name in params and isinstance(value, TensorFact):
            tensors.setdefault(f"{value.dtype} {list(value.shape)}", []).append(name)
    numbers = [f"{n}={v}" for n, v in launch.args.items() if n in params and isinstance(v, (int, float))]
    if tensors:
        described = [f"{', '.join(names)}: {kind}" for kind, names in tensors.items()]
        yield f"at the first timed shape {'; '.join(described)}"
    if numbers:
        yield f"and {', '.join(numbers)}"
