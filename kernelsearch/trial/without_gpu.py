"""The stages without a GPU: verdicts from an evaluation of the compiler's IR, times from the static model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from kernelsearch.core.errors import TaskError
from kernelsearch.core.formats import shorten_reason
from kernelsearch.core.slow_steps import report_progress
from kernelsearch.core.timed_shapes import has_lists
from kernelsearch.core.types import Config, Measurement, TensorFact, Verdict, Word
from kernelsearch.kernel.source import GLUON, Kernel
from kernelsearch.trial.answers import prepare_answers
from kernelsearch.trial.bench import Bench, first_by_dtypes
from kernelsearch.trial.bound_candidate import BoundCandidate, has_atomics
from kernelsearch.trial.estimate import ESTIMATE_PROTOCOL, estimate_times
from kernelsearch.trial.profile import evaluated_key, profile_programs
from kernelsearch.trial.rejection import Rejection, ask_within, is_by_chance, try_twice
from kernelsearch.trial.shared_state import Once
from kernelsearch.trial.unrun_blocks import Seen, refuse_changes
from kernelsearch.verify.blind_spots import UNDEFINED_LANES
from kernelsearch.verify.regime_words import (
    LARGER,
    OPTIONAL,
    OWN_REFERENCE,
    PADDED,
    PADDED_APART,
    REDRAWN,
    WORDS,
    describe_layout,
)
from kernelsearch.worker.messages import jobs

LIMIT_S = 60.0
ORDERS = ("reversed", "shuffled")
"""Orders of the grid in which the first case runs again at full depth; made sizes run whole in the first alone."""
LONG_LIMIT_S = 10.0
FEW_SMS = 2
"""`num_sms` where values are judged: a grid that is too small for the work shows only if the work is larger than it.

A kernel must be right for any number of multiprocessors, but small shapes do not fill 132 of them. One that reads
`num_sms` is also judged with the target's number: it could behave differently on two than where it is timed.
"""
HERE = "in the evaluator (no GPU)"
PATIENCE = 2
"""How many made sizes may take the task's own kernel too long before the others are left out."""

NOT_HERE = "it compiles, and is not judged: the evaluator does not know Gluon, so a GPU is needed"
NOT_RIGHT = "not judged, the seed is not right there"
PLACE = "place"
SPARE_FILL = "{} fills what is written again before it is read, in all judged cases: `torch.empty` saves its launch"
MOST_FILLS = 8
"""Fills of a launcher that are left out, each in turn."""
OPTIONAL_VALUES = {
    regime: WORDS[regime] for regime in (*OPTIONAL, "offset", "multiples", "copied", "opposed", *REDRAWN)
}
"""What regimes that count only where the task's own kernel is right have, in words."""
MOST_TIMED = 2**27
"""Elements of the tensors of a timed shape that is tried, where the task's own kernel is wrong at sizes made of it."""
UNWRITTEN = "it leaves places of its outputs unwritten, and so must other kernels"
FAILS = {Word.COMPILE: "does not compile", Word.CRASH: "fails"}
MISCOMPUTED = (Word.WRONG, Word.MEMORY, Word.RACE)
SEED_SLOW = "not judged, the seed is too slow there without a GPU"


def name_optional(case: jobs.JudgedCase) -> str:
    """What a case has that not every task takes: rows that lie apart, other numbers, or values near a range's ends.

    At made sizes the task's own kernel is judged at each case by itself.
    """
    if case.kind in jobs.LARGE:
        return ""
    other = f"other values of {' and '.join(dict(case.scalars))}" if case.scalars else ""
    padded = PADDED if case.padded == PADDED else PADDED_APART * bool(case.padded)
    return other or padded or OPTIONAL_VALUES.get(case.regime, "")


def name_part(case: jobs.JudgedCase) -> str:
    """What a case alone has of those of its optional name: one stride that is larger; else ""."""
    return f"{LARGER}{case.padded}" if name_optional(case) == PADDED_APART else ""


class EvaluatorStages:
    """The stages after the compilers without a GPU. Verdicts and counts are kept: launch options change neither."""

    mode, protocol = "interpreter", ESTIMATE_PROTOCOL

    def __init__(self, bench: Bench, once: Once, timed: tuple[str, ...], limit_s: float) -> None:
        assert bench.evaluators is not None
        self.evaluators, self.bench, self.once, self.timed, self.limit_s = bench.evaluators, bench, once, timed, limit_s

    @property
    def layers(self) -> tuple[str, ...]:
        """The isolation layers that are on."""
        return self.evaluators.layers

    def screen(
        self, candidate: BoundCandidate, cases: jobs.JudgedCases, incumbent: Measurement | None
    ) -> tuple[Verdict, Measurement]:
        try:
            verdict = self.judge(candidate, cases, "screen")
        except Rejection as rejected:
            if rejected.verdict.word is Word.CRASH:  # often no kernel at all: then the compiler says where
                candidate.compile(candidate.fit(self.timed))
            raise
        fitting = candidate.fit(self.timed)
        binaries = candidate.compile(fitting)
        return verdict, estimate_times(candidate, binaries, self.profile(candidate).counts, fitting)

    def judge_full(self, candidate: BoundCandidate, cases: jobs.JudgedCases, timed: Any = ()) -> Verdict:
        verdict, seed = self.judge(candidate, cases, "full"), BoundCandidate.of_seed(self.bench)
        return refuse_changes(candidate, verdict, lambda: self.judge(seed, cases, "full"))

    def prepare_full(self, candidate: BoundCandidate) -> None:
        """Does nothing: here `full` compiles nothing, and evaluating ahead would delay other candidates."""

    begin_builds = prepare_full

    def verify(self, candidate: BoundCandidate, cases: jobs.JudgedCases) -> Verdict:
        """`full`, with a compilation of the test shapes, of maybe other precision, and offsets at the timed shapes."""
        candidate.compile(tuple(dict.fromkeys((*candidate.fit(self.timed), *first_by_dtypes(self.bench.facts)))))
        verdict = self.judge(candidate, cases, "full")
        self.profile(candidate)
        return verdict

    def judge(self, candidate: BoundCandidate, cases: jobs.JudgedCases, depth: str) -> Verdict:
        """The verdict. Raises Rejection unless it is accept; Gluon is compiled and never judged."""
        if candidate.kernel.language == GLUON:
            candidate.compile(self.timed)
            raise Rejection(Verdict(Word.STATIC, "judge", NOT_HERE))
        key = f"{depth}/{cases[0].seed}/{evaluated_key(candidate)}"
        verdict = self.once(key, lambda: judge_cases(candidate, cases, depth, self.limit_s), is_by_chance)
        if not verdict.accepted:
            raise Rejection(verdict)
        return verdict

    def judge_seed(self, cases: jobs.JudgedCases) -> Verdict:
        return Evaluating(BoundCandidate.of_seed(self.bench), self.limit_s).run(cases)

    name_optional = staticmethod(name_optional)

    def profile(self, candidate: BoundCandidate) -> jobs.Profiled:
        """Counts of the timed shapes. Raises Rejection when the evaluator cannot run them."""
        return self.once(
            f"profile/{evaluated_key(candidate)}",
            lambda: profile_programs(candidate, self.evaluators, self.timed, self.limit_s),
            is_by_chance,
        )


def judge_cases(candidate: BoundCandidate, cases: jobs.JudgedCases, depth: str, limit_s: float) -> Verdict:
    """The verdict on these cases; at full depth the first also runs with the grid in other orders."""
    bench = candidate.bench
    say, what = bench.say if candidate.is_seed else None, f"judging the task's own kernel {HERE}"
    with report_progress(say, lambda: what + bench.how_far):
        seen = Seen.of(candidate)
        asks = asks_for_sms(candidate.kernel, candidate.config)
        few = tuple(c for c in cases if not (asks and c.sampled))  # a grid of two programs is no sample
        verdict = Evaluating(candidate, limit_s, seen=seen).judge(few, depth)
        if verdict.accepted and asks:
            sms = bench.target.num_sms
            again = Evaluating(candidate, limit_s, sms, seen).judge(cases, depth)
            if not again.accepted:
                return replace(again, reason=f"with num_sms = {sms}: {again.reason}")
            verdict = _with_error_of(again, verdict)
        return seen.add_unrun(verdict, candidate)


def list_failures(bench: Bench, shapes: Collection[str]) -> list[dict[str, str]]:
    """How the task's own kernel fails at those of these shapes that were made of the timed ones, as FAILED has it."""
    made = [shape for shape in shapes if shape.partition(":")[0] in jobs.SIZES and not has_lists(shape)]
    found = {c.shape: v for c, v in bench.right_on.items() if c.shape in made and not v.accepted}
    return [
        {
            "shape": shape,
            "sizes": bench.labels.get(shape, shape),
            "verdict": found[shape].word.value,
            "how": FAILS.get(found[shape].word, "is wrong"),
            "reason": shorten_reason(found[shape].reason),
        }
        for shape in sorted(found, key=lambda s: found[s].word not in MISCOMPUTED)
    ]


def asks_for_sms(kernel: Kernel, config: Config) -> bool:
    """Whether the launch spec or a config reads `num_sms`, so that it decides something."""
    return "num_sms" in repr(
        (kernel.grid, kernel.args, kernel.scratch, kernel.init, kernel.descriptors, kernel.config, dict(config))
    )


def why_left_out(seed: Verdict) -> str:
    """The words of a verdict's detail for cases on which the seed itself is not accepted."""
    return SEED_SLOW if seed.word is Word.TIMEOUT else NOT_RIGHT


def judge_seed(bench: Bench, case: jobs.JudgedCase, limit_s: float) -> Verdict:
    """The verdict on the task's own kernel at a case whose sizes the task did not name, reached once per case.

    A launcher may take multiples of 64 only, and a candidate's author must not be blamed for that.
    """
    if case not in bench.right_on:
        try:
            seed = BoundCandidate.of_seed(bench)
            verdict = try_twice(lambda: Evaluating(seed, limit_s, seen=Seen.of(seed)).judge_size(case))
        except TaskError as error:
            verdict = Verdict(Word.CRASH, "run", str(error), "full")
        bench.right_on[case] = verdict
    return bench.right_on[case]


def add_note(verdict: Verdict, note: str) -> Verdict:
    return replace(verdict, detail={**verdict.detail, "notes": [*verdict.detail.get("notes", ()), note]})


def _list_first(cases: jobs.JudgedCases) -> jobs.JudgedCases:
    """The first of these cases at each shape, of those whose inputs are as a regime makes them."""
    first: dict[str, jobs.JudgedCase] = {}
    for case in cases:
        if case.probe is None and not case.padded:
            first.setdefault(case.shape, case)
    return tuple(first.values())


@dataclass(frozen=True)
class Evaluating:
    """Judges a candidate by evaluations of at most limit_s seconds each, on a machine of `sms`."""

    candidate: BoundCandidate
    limit_s: float
    sms: int = FEW_SMS
    seen: Seen = field(default_factory=Seen)

    def judge(self, cases: jobs.JudgedCases, depth: str) -> Verdict:
        bench = self.candidate.bench
        named = tuple(c for c in cases if c.kind not in jobs.LARGE)
        usual = tuple(c for c in named if c.kind != "typed" or judge_seed(bench, c, self.limit_s).accepted)
        whole = tuple(c for c in usual if not c.sampled)
        bench.once(f"answers/{depth}/{cases[0].seed}", lambda: prepare_answers(bench, whole))
        verdict = self.run(usual, depth=depth)
        if depth != "full":
            return verdict
        if verdict.accepted:
            long = replace(self, limit_s=min(LONG_LIMIT_S, self.limit_s))
            verdict = long._judge_long(tuple(c for c in cases if c.kind in jobs.LARGE), verdict)
        for order in ORDERS if verdict.accepted else ():
            again = self._run_in_order(cases[:1], order)
            if not again.accepted:
                return again
        if verdict.accepted and not (again := self.run(cases[:1], jobs.ZEROED)).accepted:
            if (
                OWN_REFERENCE not in verdict.detail.get("notes", ())
                or self._seed().run(cases[:1], jobs.ZEROED).accepted
            ):
                return replace(again, reason=f"where memory that nothing wrote holds zeros: {again.reason}")
            verdict = add_note(verdict, UNWRITTEN)
        for note in self.list_spare_fills(usual) if verdict.accepted and self.candidate.is_seed else ():
            verdict = add_note(verdict, note)
            if bench.say:
                bench.say(f"note: {note}")
        if verdict.accepted and replace(self, seen=Seen()).run(_list_first(usual), jobs.UNDEFINED).word in MISCOMPUTED:
            verdict = add_note(verdict, UNDEFINED_LANES)
        return verdict

    def list_spare_fills(self, cases: jobs.JudgedCases) -> Iterator[str]:
        """Notes on where the launcher fills memory whose content decides nothing, as that which a kernel overwrites."""
        integers = (c for c in cases if c.regime in REDRAWN)  # what is written may depend on them
        first, *others = dict.fromkeys((*_list_first(cases), *integers))
        runs = replace(self, seen=Seen())  # what only poison reaches is not judged
        for number in range(1, MOST_FILLS + 1):
            order = f"{jobs.UNFILLED}{number}"
            verdict = runs.run((first,), order)
            place = verdict.detail.get(PLACE, "")
            if verdict.accepted and not place:
                return  # there are no more
            if verdict.accepted and (not others or runs.run((*others,), order).accepted):
                yield SPARE_FILL.format(place)

    def judge_size(self, case: jobs.JudgedCase) -> Verdict:
        """The verdict at a made size. What is wrong in one order of the grid only is a race.

        The log of accesses sees a race in either order, but behind atomic operations only answers show one.
        """
        if case.sampled:
            return self.run((case,))
        again = self._run_in_order((case,), ORDERS[0])
        if again.accepted and not has_atomics(self.candidate.kernel):
            return again
        forward = self.run((case,), "in turn")
        if again.accepted and forward.word is Word.WRONG:
            return replace(forward, word=Word.RACE, reason=f"right only with the grid {ORDERS[0]}: {forward.reason}")
        return again if forward.accepted and "shape" in again.detail else forward  # none if it was only slow

    def _seed(self) -> Evaluating:
        """The same for the task's own kernel, which may take long."""
        return Evaluating(BoundCandidate.of_seed(self.candidate.bench), LIMIT_S, self.sms)

    def _run_in_order(self, cases: jobs.JudgedCases, order: str) -> Verdict:
        """The verdict with every launch's programs in this order, for cases that are right in the usual one."""
        again = self.run(cases, order)
        if again.accepted:
            return again
        word = Word.RACE if again.word is Word.WRONG else again.word
        reason = f"with the grid {order}: {again.reason}"
        return replace(again, word=word, reason=reason, detail={**again.detail, "order": order})

    def run(self, cases: jobs.JudgedCases, order: str = "forward", depth: str = "full", judged: bool = True) -> Verdict:
        """The verdict on these cases, with every launch's programs in one order.

        Without judged no answer is compared with the right one, which takes seconds: it may be the GPU's business.
        """
        bench = self.candidate.bench
        measure = partial(self._seed().run, cases, order, judged=False)
        message, shapes = self.candidate.message(code=True), tuple(c.shape for c in cases)
        sampled = tuple(c.seed + 1 if c.sampled else 0 for c in cases)
        job = jobs.Evaluate(bench.path, message, shapes, bench.inputs(cases), order, sampled, self.sms)
        assert bench.evaluators is not None
        try:
            runs = ask_within(self.candidate, bench.evaluators, job, self.limit_s, (cases, order), measure)
        except Rejection as rejected:
            return replace(rejected.verdict, depth=depth)
        if failed := next((r.verdict for r in runs if r.verdict is not None), None):
            layout = describe_layout(cases[len(runs) - 1].padded) if failed.word is Word.MEMORY else ""
            return replace(failed, reason=failed.reason + layout, depth=depth)
        self.seen.add(runs)
        verdict = bench.judge_runs(cases, runs, depth) if judged else Verdict(Word.ACCEPT, "run", depth=depth)
        if order.startswith(jobs.UNFILLED):
            verdict = replace(verdict, detail={**verdict.detail, PLACE: runs[0].place})
        suspect = next((r.suspect for r in runs if r.suspect), "")  # what no right kernel needs to do
        suspicious = suspect and verdict.accepted and (judged or not any(sampled))
        return Verdict(Word.MEMORY, "run", suspect, depth) if suspicious else verdict

    def _judge_long(self, cases: jobs.JudgedCases, verdict: Verdict) -> Verdict:
        """Judges made and timed sizes too; those at which the task's own kernel is too slow here are in the detail.

        A candidate that takes too long where the task's own kernel does not is refused: it would be taken unjudged.
        The first of each kind come first, so that one slow size does not leave a whole kind unseen.
        """
        notes, doubtful = defaultdict[str, dict[str, None]](dict), False
        if self.candidate.is_seed:
            prepare_answers(self.candidate.bench, tuple(c for c in cases if not c.sampled))
        for number, case in enumerate(sorted(cases, key=lambda c: c.shape.partition(":")[2]), 1):
            self.candidate.bench.how_far = f", size {number} of {len(cases)}"
            plain = case.kind == "drawn" or case.regime == "randn"  # else its size has a plain case too
            if len(notes[SEED_SLOW]) >= PATIENCE:
                notes[SEED_SLOW].setdefault(case.shape if plain else f"{WORDS[case.regime]} at made sizes")
                continue
            seed = judge_seed(self.candidate.bench, case, self.limit_s)
            if not seed.accepted and (not plain or case.regime in REDRAWN):
                kind = notes[why_left_out(seed)], f"{WORDS[case.regime]} at made sizes"
                case = replace(case, regime="randn")  # the size with the task's own integers
                seed = judge_seed(self.candidate.bench, case, self.limit_s)
                if seed.accepted:  # else it is the size, which is said
                    kind[0].setdefault(kind[1])
                if not plain:
                    continue
            if case.kind == "odd" and not seed.accepted and seed.word is not Word.TIMEOUT:
                notes[NOT_RIGHT].setdefault(case.shape)
                case = replace(case, shape=jobs.even_key(case.shape))
                seed = judge_seed(self.candidate.bench, case, self.limit_s)
            if not seed.accepted:
                if seed.word is Word.RACE and case.kind == "even" and self.candidate.is_seed:
                    return seed  # not for want of a tail
                notes[why_left_out(seed)].setdefault(case.shape)
                doubtful = doubtful or seed.word in MISCOMPUTED
                continue
            again = seed if self.candidate.is_seed else replace(self, limit_s=LIMIT_S).judge_size(case)
            if not again.accepted:
                return again
            verdict = _with_error_of(verdict, again)
        if doubtful and self.candidate.is_seed and (wrong := self._judge_timed(cases[0].seed)):
            return wrong
        return replace(verdict, detail={**verdict.detail, **{why: [*what] for why, what in notes.items() if what}})

    def _judge_timed(self, seed: int) -> Verdict | None:
        """The verdict that refuses the task's own kernel at a timed shape, of which a few programs run; else None.

        Made sizes may not go together. Where the kernel is wrong at some, the timed shapes decide, if they fit.
        """
        facts = self.candidate.bench.facts
        for shape in facts.shapes:
            passed = [a for f in facts.traces[shape.key].launches for a in f.args.values() if isinstance(a, TensorFact)]
            if sum(a.extent for a in passed) > MOST_TIMED:
                continue
            case = jobs.JudgedCase(shape.key, "randn", seed, sampled=True)
            verdict = judge_seed(self.candidate.bench, case, LIMIT_S)
            if verdict.word is Word.MEMORY or (verdict.word is Word.WRONG and "index" in verdict.detail):
                return verdict
        return None


def _with_error_of(verdict: Verdict, again: Verdict) -> Verdict:
    return replace(verdict, error_ratio=max(verdict.error_ratio or 0.0, again.error_ratio or 0.0))
