"""Blocks of a kernel that no judged case ran: they are named in the verdict, and a rewrite may not change them.

What runs is seen in the evaluator, also beside a GPU. A loop in steps of a tile is no such block: with tiles
that are as large as all sizes it has no turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from kernelsearch.core.types import Verdict, Word
from kernelsearch.kernel.blocks import Block, find_change, name_lines
from kernelsearch.tasks.module import read_text
from kernelsearch.trial.bound_candidate import BoundCandidate
from kernelsearch.trial.rejection import Rejection
from kernelsearch.worker.messages.jobs import Ran

UNRUN, ABSENT = "blocks that no case ran", "blocks that no case compiled"
"""The fields of a verdict's detail with these blocks, and with those that constexprs leave out in every case."""


@dataclass
class Seen:
    """What was seen of a candidate's blocks: those whose condition was computed, and those that ran."""

    reached: set[Block] = field(default_factory=set)
    ran: set[Block] = field(default_factory=set)
    absent: set[Block] = field(default_factory=set)

    def add(self, runs: Iterable[Ran]) -> None:
        """Adds what ran up to the last call that can be judged."""
        for run in runs:
            if run.outputs:
                self.reached |= run.reached
                self.ran |= run.ran
                self.absent |= run.absent

    @classmethod
    def of(cls, candidate: BoundCandidate) -> Seen:
        """Nothing so far; of the task's own kernel what was seen of it before."""
        return candidate.bench.once(f"{UNRUN} of the task's own kernel", cls) if candidate.is_seed else cls()

    def add_unrun(self, verdict: Verdict, candidate: BoundCandidate) -> Verdict:
        """An accepting verdict at full depth with the blocks that did not run; any other as it is."""
        more = self.describe(candidate) if verdict.accepted and verdict.depth == "full" else {}
        return replace(verdict, detail={**verdict.detail, **more}) if more else verdict

    def describe(self, candidate: BoundCandidate) -> dict[str, tuple[Block, ...]]:
        """The candidate's own blocks that did not run, by the fields of a verdict's detail; without empty ones."""
        left_out = {UNRUN: self.reached - self.ran, ABSENT: self.absent - self.reached - self.ran}
        own = {n: tuple(sorted(b for b in blocks if b[0] in candidate.kernel.names)) for n, blocks in left_out.items()}
        return {name: blocks for name, blocks in own.items() if blocks}


def refuse_changes(candidate: BoundCandidate, verdict: Verdict, judge_seed: Callable[[], Verdict]) -> Verdict:
    """An accepting verdict at full depth, as it is. Raises Rejection where the candidate has other unrun blocks than
    the task's own kernel, which are said once.
    """
    bench = candidate.bench
    if candidate.is_seed:
        seed = verdict
    elif candidate.kernel.digest == bench.seed.digest:
        return verdict
    else:
        try:
            seed = judge_seed()
        except Rejection:
            return verdict
    ours, theirs = verdict.detail.get(UNRUN, ()), seed.detail.get(UNRUN, ())
    if (say := bench.say) and (lines := name_lines(read_text(bench.path), theirs)):
        said = f"no judged case runs {lines} of {bench.path}: no rewrite may change them"
        bench.once(UNRUN, lambda: say(said))
    if changed := find_change(candidate.kernel, ours, bench.seed, theirs):
        reason = f"it differs from the task's own kernel in lines that no judged case runs: `{changed}`"
        raise Rejection(replace(verdict, word=Word.WRONG, reason=reason))
    return verdict
