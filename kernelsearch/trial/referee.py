"""`verify`: the full verdict on a kernel file for a task, as JSON and in words."""

from __future__ import annotations

import math
import os
import re
from dataclasses import replace
from typing import Any

from kernelsearch.core import formats
from kernelsearch.core.errors import KernelsearchError, KernelSyntaxError, SpaceError, TaskError
from kernelsearch.core.formats import shorten_reason
from kernelsearch.core.slow_steps import Say, report_progress
from kernelsearch.core.types import Config, TaskFacts, Verdict, Word, config_key
from kernelsearch.kernel.blocks import name_lines
from kernelsearch.kernel.source import Kernel
from kernelsearch.kernel.space import explain_unknown_name, find_broken_constraint, is_name_of
from kernelsearch.tasks.module import explain_missing_file, read_text
from kernelsearch.trial import Evaluation
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.coverage import LEFT_OUT, describe_coverage, format_coverage
from kernelsearch.trial.evaluation import MISSING_LAYERS
from kernelsearch.trial.unrun_blocks import ABSENT, UNRUN
from kernelsearch.trial.without_gpu import HERE, MISCOMPUTED
from kernelsearch.verify import gate
from kernelsearch.verify.blind_spots import WITHOUT_A_GPU
from kernelsearch.verify.cures import name_cures
from kernelsearch.verify.regime_words import WORDS


def verify(
    task: str, kernel: str | None = None, target: str = "auto", say: Say | None = None, require_isolation: bool = False
) -> Verdict:
    """The full verdict on a kernel file, or on the task's own kernel. Raises TaskError when a file cannot be read.

    say prints progress of slow steps. require_isolation raises IsolationError where a layer is missing.
    """
    if not os.path.exists(task):
        raise TaskError(explain_missing_file(task))
    text = read_kernel_argument(task, kernel)
    if text is not None and not (verdict := check_kernel_file(text)).accepted:
        return verdict
    with Bench.open(task, target, say=say) as bench:
        bench.check_isolation(say or (lambda text: None), require_isolation)
        with report_progress(say, "computing the right answers of the test cases"):
            bench.cases("full")
            must_be_judgeable(bench)
        large = tuple(note for note in bench.facts.notes if note.endswith(formats.LEFT_OUT))
        if say and large:
            say("\n".join(f"note: {note}" for note in large))
        if text is None:
            verdict = Evaluation(bench).verify(bench.seed, bench.facts.config)
        else:
            what = f"judging {kernel} {HERE}" if bench.device is None else f"judging {kernel}"
            with report_progress(say, lambda: what + bench.how_far):
                verdict = verify_text(bench, text)
        verdict = _narrow(_add_notes(verdict, large), text is None)
        if not verdict.accepted:
            return _add_notes(verdict, name_cures(verdict, text is None))
        judged = describe_coverage(verdict, bench)
        code = read_text(task) if text is None else text
        for name, blocks in (("lines", UNRUN), ("lines left out", ABSENT)):
            judged |= {name: lines} if (lines := name_lines(code, verdict.detail.get(blocks, ()))) else {}
        lists = {n: [bench.labels.get(k, k) for k in verdict.detail[n]] for n in LEFT_OUT if n in verdict.detail}
        return replace(verdict, detail={**verdict.detail, **lists, "judged": judged})


def must_be_judgeable(bench: Any) -> None:
    """Raises TaskError where right cannot be told from wrong for a bench's task."""
    if passing := bench.find_unjudgeable():
        raise TaskError(f"{bench.facts.name} cannot be judged: {'; '.join(passing)}")


def _narrow(verdict: Verdict, own: bool) -> Verdict:
    """The verdict, with where the task's own kernel fails as the reason why it holds at the shapes' sizes alone."""
    if not (failed := formats.describe_failures(verdict.detail.get(formats.FAILED, ()))):
        return verdict
    why = f"it {failed}" if own else f"the task's own kernel {failed}, so nothing is judged there"
    return replace(verdict, reason=f"at the sizes of the task's shapes alone: {why}")


def is_right(verdict: Verdict, own: bool) -> bool:
    """Whether a kernel is accepted, and the task's own (own) gives wrong answers at no made size either."""
    failed = verdict.detail.get(formats.FAILED, ()) if own else ()
    return verdict.accepted and not any(f["verdict"] in MISCOMPUTED for f in failed)


def _add_notes(verdict: Verdict, more: tuple[str, ...]) -> Verdict:
    notes = [*verdict.detail.get("notes", ()), *more]
    return replace(verdict, detail={**verdict.detail, "notes": notes}) if notes else verdict


def read_kernel_argument(task: str, kernel: str | None) -> str | None:
    """The text of a command's kernel file; None for the task's own kernel (no file given, or the task's own file)."""
    same = kernel is not None and os.path.realpath(kernel) == os.path.realpath(task)
    return read_text(kernel) if kernel and not same else None


def check_kernel_file(text: str) -> Verdict:
    """The gate's verdict on a kernel file; a task file gets a note about what a kernel file is."""
    verdict = gate.check(text)
    if verdict.accepted or not _HOST.search(text):
        return verdict
    return replace(verdict, detail={**verdict.detail, "notes": [KERNEL_FILE]})


_HOST = re.compile(r"^(import torch|from torch|def (get_inputs|reference)\b|class Model)", re.MULTILINE)

KERNEL_FILE = (
    "this looks like a task file; a kernel file has only the @triton.jit functions, under the names of the task's, "
    "with `import triton` and `import triton.language as tl`: `kernelsearch show best` prints one"
)


def verify_text(bench: Bench, text: str, limit_s: float | None = None) -> Verdict:
    """The full verdict on a kernel file's text for an opened task; limit_s shortens what a candidate may run."""
    verdict = gate.check(text)
    if not verdict.accepted:
        return verdict
    try:
        candidate = Kernel.parse(text)
        config = config_of(candidate, bench.facts)
    except (KernelSyntaxError, SpaceError) as error:
        return Verdict(Word.STATIC, "gate", str(error), depth="full")
    return Evaluation(bench, limit_s=limit_s).verify(candidate, config)


def config_of(kernel: Kernel, facts: TaskFacts) -> Config:
    """The config to verify or measure: the file's CONFIG over the task's own, else the first of its space.

    What the file's ARGS computes is not taken from the task.
    Raises SpaceError for an unknown name, and for a config that breaks a constraint.
    """
    launches = [launch for trace in facts.traces.values() for launch in trace.launches]
    passed = {n for f in launches for n, v in f.args.items() if isinstance(v, (int, float))}
    if unknown := explain_unknown_name(kernel, Kernel.parse(facts.seed), passed):
        raise SpaceError(unknown)
    start = {**{name: values[0] for name, values in facts.space.items()}, **facts.config}
    computed = {name for given in kernel.args.values() for name in given}
    own = {k: v for k, v in start.items() if is_name_of(k, kernel) and k.rpartition(".")[2] not in computed}
    first = {k: v[0] for k, v in kernel.space.items()}
    config = {**first, **own, **kernel.config}
    if broken := find_broken_constraint(kernel, config, facts):
        raise SpaceError(f"the config {config_key(config)} breaks the constraint {broken!r}: give another in CONFIG")
    return config


def as_json(verdict: Verdict) -> dict[str, Any]:
    """The verdict as JSON. Numbers that are not finite are null in error_ratio, else a word."""
    ratio = verdict.error_ratio
    blind = verdict.accepted and verdict.referee.mode == "interpreter"
    detail = {**verdict.detail, **({"cannot see": list(WITHOUT_A_GPU)} if blind else {})}
    return {
        "verdict": verdict.word.value,
        "stage": verdict.stage,
        "reason": verdict.reason,
        "depth": verdict.depth,
        "error_ratio": ratio if ratio is None or math.isfinite(ratio) else None,
        "referee": {"mode": verdict.referee.mode, "layers": list(verdict.referee.layers)},
        "detail": {k: _plain(v) for k, v in detail.items() if k != "trace"},
    }


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def explain(verdict: Verdict) -> str:
    """The verdict for a kernel's author, in lines: where it fails, the expected and actual value, the error.

    Raises KernelsearchError for what is no verdict.
    """
    if not isinstance(verdict, Verdict):
        raise KernelsearchError(NO_VERDICT.format(type(verdict).__name__))
    said = shorten_reason(verdict.reason)
    lines = [f"{verdict.word.value} at {verdict.stage}: {said}" if said else verdict.word.value]
    lines += [f"  {line}" for line in verdict.reason.splitlines()[:-1]] if verdict.reason.endswith(f"\n{said}") else []
    detail = verdict.detail
    for name, label in _EXPLAINED.items():
        if detail.get(name) not in (None, "") and not (name in LEFT_OUT and "judged" in detail):
            said = ", ".join(detail[name]) if name in LEFT_OUT else detail[name]
            lines.append(f"  {label}: {WORDS.get(said, said) if name == 'regime' else said}")
    if "element" in detail:
        lines.append(f"  moved input: element {detail['element']} of input {detail.get('input')}")
    if "wrong" in detail:
        lines.append(f"  wrong elements: {detail['wrong']:,} of {detail['of']:,}")
    if verdict.error_ratio is not None:
        lines.append(f"  error: {verdict.error_ratio:.3g} times what is allowed")
    lines += [f"  note: {note}" for note in detail.get("notes", ())]
    if coverage := format_coverage(verdict):
        lines.append(f"  {coverage}")
    lines.append(f"  referee: {verdict.referee.mode}, depth {verdict.depth}")
    if verdict.referee.mode == "interpreter" and verdict.accepted:
        lines += [f"  not seen without a GPU: {one}" for one in WITHOUT_A_GPU]
    return "\n".join(lines)


NO_VERDICT = (
    "kernelsearch.explain takes a verdict, as `kernelsearch.verify(...)` returns it, not a {}: what a call of an "
    "exported package runs is said by that package's own explain(name, ...)"
)
_EXPLAINED = {
    "label": "sizes",
    "regime": "values",
    "padded": "rows lie apart",
    "order": "order of programs",
    "output": "output",
    "index": "first wrong element",
    "expected": "expected",
    "got": "got",
    "line": "line",
    "source": "offending line",
    MISSING_LAYERS: MISSING_LAYERS,
    **{note: note for note in LEFT_OUT},
}
"""Fields of a verdict's detail that are shown, and their labels."""
