"""The task that a judge serves, with its results so far: inputs, right answers, the seed's launches.

On a GPU machine expectations are computed on the GPU, because eager's error must be the GPU's own, and kept on the
CPU, because judging a candidate must not disturb a timing.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any

import torch

from kernelsearch.core.errors import TaskError
from kernelsearch.core.plugins import describe_error
from kernelsearch.core.types import TaskFacts, Verdict
from kernelsearch.kernel.targets import Target
from kernelsearch.tasks.facts import label_shape
from kernelsearch.tasks.module import USER_ERRORS
from kernelsearch.verify import regimes
from kernelsearch.verify.bits import compute_fingerprint, find_changed_input, same_bits
from kernelsearch.verify.dispatch import OperationNames
from kernelsearch.verify.domains import is_whole
from kernelsearch.verify.drawn_integers import is_drawn
from kernelsearch.verify.expectation import Expectation, make_expectation, use_one_thread
from kernelsearch.verify.half_roundings import redraw_roundings
from kernelsearch.verify.judge import Probe, apply_probe, is_seen, judge
from kernelsearch.verify.library import CutConvolutions, steady_library
from kernelsearch.verify.regime_words import PLANTED, REDRAWN, WORDS
from kernelsearch.verify.rows import expect_rows, expect_written
from kernelsearch.verify.scalars import list_numbers
from kernelsearch.verify.tolerance import COMPUTE_EPS
from kernelsearch.verify.widest import run_reference
from kernelsearch.worker.isolation.forked import compute_forked
from kernelsearch.worker.judging.integer_draws import IntegerDraws, move_marks
from kernelsearch.worker.judging.own_reference import fits_cpu
from kernelsearch.worker.launcher import standin, tensors, trace
from kernelsearch.worker.messages.jobs import JudgedCase

CACHED_SHARE = 0.3
"""The share of the GPU's memory that the right answers of timed shapes may keep."""
SPARE_SHARE = 0.02
"""The share of the GPU's memory that the judge may hold without need."""
FEW_KEPT = 16
"""Right answers to some rows that are kept: those of one candidate, which the next one mostly writes too."""
RUN_ROOM, ANSWER_ROOM = 4.5, 12
"""How many times a timed shape's inputs and outputs a judged run of it needs, and its inputs the right answer."""


@dataclass
class OpenedTask:
    """One judge's task: device, "cuda" or "cpu", has all tensors unless a docstring says otherwise; launches has the
    traced launches by shape, answer_s the seconds of a right answer, 0 if none was timed.
    """

    task: Any
    facts: TaskFacts
    target: Target
    device: str
    launches: dict[str, Any]
    answer_s: float = 0.0
    _timed: dict[JudgedCase, tuple[Expectation, list[Any]]] = field(default_factory=dict)
    _accepted: dict[tuple[Any, ...], Verdict] = field(default_factory=dict)
    _answers: dict[JudgedCase, Expectation] = field(default_factory=dict)
    _secret: int = field(default_factory=lambda: secrets.randbits(62))

    def __post_init__(self) -> None:
        self._keep(self.inputs_of)
        self._keep(self.inputs_before)
        self._keep(self.build_case)
        self._keep(self.run_seed)
        self._keep(self.name_operations)
        self._keep(self.takes_picks)
        self._keep(self.expect_written, FEW_KEPT)  # each tile size writes other rows
        self.integers = IntegerDraws(self.task, self.facts, self.target, self._build, self.build_case)

    def _keep(self, method: Callable[..., Any], most: int | None = None) -> None:
        """Has a method's results kept: all, or the latest ones."""
        setattr(self, method.__name__, lru_cache(most)(method))

    @property
    def on_cpu(self) -> bool:
        """True if kernels are evaluated here, without a GPU."""
        return self.device == "cpu"

    def judged_shape_keys(self) -> list[str]:
        """The keys of the test shapes, else of the timed shapes."""
        return [s.key for s in self.facts.test_shapes or self.facts.shapes]

    def inputs_of(self, case: JudgedCase) -> list[Any]:
        """The inputs of a case."""
        built = self.build_case(case.shape)
        if case.probe is not None:
            own = apply_probe(self.inputs_of(replace(case, probe=None)), Probe(*case.probe))
            return built.complete(own)
        if case.scalars:
            given, names = dict(case.scalars), built.names
            own = self.inputs_of(replace(case, scalars=()))
            scales = {n: torch.full_like(v, given[n]) for n, v in zip(names, own) if n in given and torch.is_tensor(v)}
            marks = {v: given[n] for n, v in zip(names, own) if n in given and type(v) is int and v < 0}
            return [{**given, **scales}.get(n, move_marks(v, marks)) for n, v in zip(names, own, strict=True)]
        if case.padded:
            return tensors.pad_inputs(self.inputs_of(replace(case, padded="")), built.names, case.padded)
        if case.regime == regimes.OWN:
            return list(self._build(case.shape, case.seed).inputs)
        values = list(built.inputs)
        if case.regime in REDRAWN:
            values = self.integers.redraw(case, self.list_numbers(case.shape, "marks"))
        domain = dict(self.task.domain)
        if case.regime in REDRAWN:
            domain |= {name: "fixed" for name, v in zip(built.names, built.inputs, strict=True) if is_drawn(v)}
        how = {"names": built.names, "domain": domain, "rows": self.count_rows(case.shape)}
        how |= {"precision": self.task.precision, "exponentials": self.has_exponentials()}
        if case.regime in ("multiples", regimes.COPIED, PLANTED):
            kind = "tolerances" if case.regime == regimes.COPIED else "multiples"
            numbers = self.list_numbers(case.shape, kind) or [1.0]
            how["number"] = max(numbers) if case.regime == PLANTED else numbers[case.seed % len(numbers)]
        regime = "randn" if case.regime in REDRAWN else case.regime
        return built.complete(regimes.make_inputs(values, regime, case.seed, **how))

    def list_numbers(self, shape: str, kind: str = "multiples") -> list[float]:
        """The numbers of the reference of a kind."""
        built = self.build_case(shape)
        return list_numbers(built.reference64, built.inputs, kind)

    def takes_redrawn(self, case: JudgedCase) -> bool:
        """True if the reference takes a case's integers, tried on the CPU: on a GPU an index may end the process."""
        built, inputs = self.build_case(case.shape), self.inputs_of(case)
        if not any(is_drawn(own) and not torch.equal(v, own) for v, own in zip(inputs, built.inputs, strict=True)):
            return False
        here = [_cpu(v) for v in inputs]  # before a stand-in says that all tensors are on a GPU
        return self._takes(case.shape, lambda own: here)

    def takes_scalar(self, case: JudgedCase) -> bool:
        """True if the reference takes a case's number, tried on the CPU, and has results of the usual sizes that can be
        judged; more or fewer ones after a flag.
        """
        here = [_cpu(v) for v in self.inputs_of(case)]
        with suppress(TaskError):
            if not self._takes(case.shape, lambda own: here):
                return False
            expected, usual = self.expectation_of(case), self.run_seed(case.shape).outputs
            sizes, own = [o.shape for o in expected.outputs], [o.shape for o in usual]
            return not expected.dropped and (sizes == own or len(sizes) != len(own))
        return False

    def takes_shape(self, shape: str) -> bool:
        """Whether the reference takes a shape, tried on the CPU with the task's own values."""
        return self._takes(shape, lambda own: own)

    def takes_picks(self) -> bool:
        """Whether the reference takes an integer's least or largest value everywhere, tried on the CPU."""

        def fill(own: Sequence[Any], end: Callable[[torch.Tensor], Any]) -> list[Any]:
            return [torch.full_like(v, int(end(v))) if is_whole(v) else v for v in own]

        key = self.judged_shape_keys()[0]
        return all(self._takes(key, partial(fill, end=end)) for end in (torch.amin, torch.amax))

    def _takes(self, shape: str, change: Callable[[Sequence[Any]], Iterable[Any]]) -> bool:
        """Whether the reference takes what a change makes of its own inputs at a shape, on the CPU."""
        with suppress(*USER_ERRORS, TaskError), standin.pretend_gpu(self.target, "cpu"):
            built = self.task.build(shape, 0, "cpu")
            run_reference(built.reference, list(change(built.inputs)))
            return True
        return False

    def has_exponentials(self) -> bool:
        """Whether the reference computes exponentials, as of scores; True where it fails on the task's own values."""
        names = self.name_operations() or regimes.EXPONENTIALS
        return any(part in name for name in names for part in regimes.EXPONENTIALS)

    def name_operations(self) -> set[str]:
        """The operations of the reference, none where it fails on the task's own values."""
        names = OperationNames()  # on the CPU: there a kernel that is its own reference is evaluated
        with suppress(*USER_ERRORS, TaskError), standin.pretend_gpu(self.target, "cpu"), names:
            built = self.task.build(self.judged_shape_keys()[0], 0, "cpu")
            built.reference(*built.inputs)
        return names.seen

    def inputs_before(self, case: JudgedCase) -> list[Any]:
        """The inputs of a case before it ran, on the CPU."""
        return [_cpu(v) for v in self.inputs_of(case)]

    def expectation_of(self, case: JudgedCase) -> Expectation:
        """The right answer of a case and its limits, on the CPU."""
        if case not in self._answers:
            self._answers[case] = self._compute_answer(case, self.inputs_of(case))
        return self._answers[case]

    def prepare_answers(self, cases: Iterable[JudgedCase]) -> None:
        """Computes right answers on all cores, those that the CPU evaluates; the others wait until they are needed."""
        missing = [c for c in dict.fromkeys(cases) if c not in self._answers and self._is_evaluated(c)]
        if len(missing) > 1:
            for case in missing:
                self.inputs_before(case)  # here, where others find them too
            made = compute_forked(self._compute_without_gpu, missing)
            self._answers |= {c: answer for c, answer in made.items() if self.on_cpu or self._holds_on_gpu(c, answer)}

    def _is_evaluated(self, case: JudgedCase) -> bool:
        """Whether the CPU makes the right answer of a case, also where there is a GPU."""
        if self.on_cpu or not trace.is_own_reference(self.build_case(case.shape)):
            return self.on_cpu
        return fits_cpu(self.inputs_of(case))

    def _compute_without_gpu(self, case: JudgedCase) -> Expectation:
        """The right answer of a case, in a process that was forked and cannot use a GPU."""
        self.device = "cpu"
        return self._compute_answer(case, self.inputs_before(case))

    def _holds_on_gpu(self, case: JudgedCase, answer: Expectation) -> bool:
        """Whether the GPU's own run of the reference is right by an answer whose errors are those of the evaluator."""
        return judge(answer, [y.cpu() for y in self.run_reference(case)]).accepted

    def _compute_answer(self, case: JudgedCase, inputs: list[Any]) -> Expectation:
        built = self.build_case(case.shape)
        strides = () if case.padded else self._strides(case.shape)
        with steady_library():
            expected = self._expectation(case, built, inputs, nullcontext, strides)
        return replace(expected, outputs=tuple(output.to_cpu() for output in expected.outputs))

    def find_shown(self, cases: Sequence[JudgedCase]) -> list[JudgedCase]:
        """Those of one case's probes whose element moves the answer by more than the limits of both.

        Most elements of a large table move nothing: that is seen without any limits.
        """
        own = self.run_reference(base := replace(cases[0], probe=None))
        moved = [c for c in cases if not all(map(same_bits, own, self.run_reference(c)))]
        self.prepare_answers((base, *moved) if moved else ())
        return [c for c in moved if is_seen(self.expectation_of(base), self.expectation_of(c))]

    def run_reference(self, case: JudgedCase) -> list[Any]:
        """The reference's answer in its own dtypes."""
        eager = self._eager(case, self.build_case(case.shape), nullcontext)
        with steady_library():
            return run_reference(eager, self.inputs_of(case), self.mutated_positions(case))

    def redraw_roundings(self, case: JudgedCase) -> Iterator[Expectation]:
        """The right answer, where an element may err as the reference does with other roundings of its own."""
        with use_one_thread():
            run = partial(self.run_reference, case)
            yield from redraw_roundings(self.expectation_of(case), run, self.task.precision, case.seed)

    def expect_written(self, case: JudgedCase, rows: tuple[int, ...]) -> Expectation | None:
        """The right answer in some rows of the output, on the CPU, where it follows from these rows of inputs alone."""
        built = self.build_case(case.shape)
        with steady_library():
            return expect_written(
                lambda few: self._expectation(case, built, few, nullcontext),
                self._eager(case, built, nullcontext),
                self.inputs_of(case),
                rows,
            )

    def load_timed(self, case: JudgedCase) -> tuple[Expectation, list[Any]]:
        """The right answer and inputs of a timed shape, in GPU memory; kept for the next candidate if there is room."""
        if case in self._timed:
            return self._timed[case]
        built = self.task.build(case.shape, case.seed, self.device)
        inputs = tensors.count_bytes(built.inputs)
        if torch.cuda.mem_get_info()[0] < ANSWER_ROOM * inputs:
            self._timed.clear()
            torch.cuda.empty_cache()
        floats = {x.dtype for x in built.inputs if isinstance(x, torch.Tensor) and x.is_floating_point()}
        eps = COMPUTE_EPS["tf32"] if torch.backends.cudnn.allow_tf32 and floats == {torch.float32} else 0.0
        answer = self._expect_timed(case, built, eps), list(built.inputs)
        torch.cuda.empty_cache()  # the run worker gets the reference's intermediate memory
        outputs = sum(math.prod(o.shape) * o.dtype.itemsize for o in answer[0].outputs)
        enough = torch.cuda.mem_get_info()[0] > RUN_ROOM * (inputs + outputs)
        if enough and torch.cuda.memory_allocated() <= CACHED_SHARE * read_device_memory():
            self._timed[case] = answer
        return answer

    def _expect_timed(self, case: JudgedCase, built: Any, convolution_eps: float) -> Expectation:
        def expect(inputs: Sequence[Any]) -> Expectation:
            return self._expectation(case, built, inputs, CutConvolutions, convolution_eps=convolution_eps)

        by_rows = None
        if not self.mutated_positions(case):
            by_rows = expect_rows(expect, self._eager(case, built, CutConvolutions), built.inputs)
        return by_rows or expect(built.inputs)

    def _eager(self, case: JudgedCase, built: Any, mode: Callable[[], AbstractContextManager[Any]]) -> Any:
        """The reference within `mode`."""

        def eager(*inputs: Any) -> Any:
            with self._reference_at(case), mode():
                return built.reference(*inputs)

        return eager

    def _expectation(
        self,
        case: JudgedCase,
        built: Any,
        inputs: Sequence[Any],
        mode: Callable[[], AbstractContextManager[Any]],
        strides: tuple[Any, ...] = (),
        convolution_eps: float = 0.0,
    ) -> Expectation:
        """The right answer; eager's error is that of the reference within `mode`."""
        return make_expectation(
            built.reference64,
            self._eager(case, built, nullcontext),
            inputs,
            shape=case.shape,
            regime=case.regime,
            precision=self.task.precision,
            mutates=self.mutated_positions(case),
            strides=strides,
            seed=case.seed,
            tolerance=self.task.tolerance or 1.0,
            convolution_eps=convolution_eps,
            picks=self.device == "cpu" or self.takes_picks(),
        )

    @contextmanager
    def _reference_at(self, case: JudgedCase) -> Iterator[None]:
        """Turns an error of the user's reference on judging inputs into a TaskError that names the inputs."""
        try:
            yield
        except MemoryError:  # the worker's child answers it
            raise
        except USER_ERRORS as error:
            label = label_shape(self.task, case.shape)
            file, inputs = self.task.path, f"inputs ({WORDS.get(case.regime, case.regime)})"
            raise TaskError(
                f"{file.name}: the reference fails at {label} with {inputs}: {describe_error(error, file)}"
            ) from error

    def mark_bits(self, case: JudgedCase, outputs: Sequence[Any]) -> tuple[Any, ...]:
        """What only these bits at this case have."""
        return case, compute_fingerprint(outputs, self._secret)

    def find_accepted(self, mark: tuple[Any, ...], after: Sequence[Any]) -> Verdict | None:
        """The verdict that accepted the same bits at a timed shape, if inputs are as they were; None if there is none.

        Candidates that differ in their tiles only often give the same bits.
        """
        case, known = mark[0], self._accepted.get(mark)
        if known is None:
            return None
        fresh = (
            self._timed[case][1] if case in self._timed else self.task.build(case.shape, case.seed, self.device).inputs
        )
        return known if find_changed_input(fresh, after, self.mutated_positions(case)) is None else None

    def keep_accepted(self, mark: tuple[Any, ...], verdict: Verdict) -> None:
        self._accepted[mark] = verdict

    def make_room(self) -> None:
        """Gives other processes the memory that only the next right answer needs, if it is much."""
        spare = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        if spare and spare > SPARE_SHARE * read_device_memory():
            torch.cuda.empty_cache()

    def build_case(self, shape: str) -> Any:
        """The case of a shape with its weights, and inputs that the regimes replace."""
        return self._build(shape, 0)

    def _build(self, shape: str, seed: int) -> Any:
        with nullcontext() if self.device == "cuda" else standin.pretend_gpu(self.target, "cpu"):
            return self.task.build(shape, seed, self.device)

    def mutated_positions(self, case: JudgedCase) -> tuple[int, ...]:
        """The positions of the tensors that the task declares as mutated."""
        if not self.task.mutates:
            return ()
        built = self.build_case(case.shape)
        return tuple(map(built.names.index, tensors.find_mutated(built.names, built.inputs, self.task.mutates)))

    def run_seed(self, shape: str) -> Any:
        """The launches and results of the seed's launcher at a shape; its kernels do not run."""
        return trace.run_launcher(self.task, shape, self.target)

    def list_launches(self, shape: str) -> tuple[Any, ...]:
        return self.run_seed(shape).launches

    def _strides(self, shape: str) -> tuple[Any, ...]:
        """The strides of the seed's outputs, which every candidate must keep."""
        return tuple(tuple(o.stride()) for o in self.run_seed(shape).outputs)

    def count_rows(self, shape: str) -> int | None:
        """The length of the first output's first axis, along which regimes are mixed."""
        first = next(iter(self.run_seed(shape).outputs), None)
        return first.shape[0] if first is not None and first.dim() else None


def read_device_memory() -> int:
    """Bytes of the GPU's memory."""
    return torch.cuda.get_device_properties(0).total_memory


def _cpu(value: Any) -> Any:
    return value.cpu() if hasattr(value, "cpu") else value
