"""The task that a judge serves, with its results so far: inputs, right answers, the seed's launches.

On a GPU machine expectations are computed on the GPU, because eager's error must be the GPU's own, and kept on the
CPU, because judging a candidate must not disturb a timing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import torch

from kernelsearch.core.errors import TaskError
from kernelsearch.core.types import TaskFacts, TensorFact
from kernelsearch.kernel.targets import Target
from kernelsearch.tasks.module import USER_ERRORS, said
from kernelsearch.verify import regimes
from kernelsearch.verify.expectation import Expectation, expectation
from kernelsearch.verify.judge import Probe, apply_probe
from kernelsearch.worker.launcher import standin, tensors, trace
from kernelsearch.worker.launcher.twin import TwinMode, twin_tensor
from kernelsearch.worker.messages.jobs import Case

CACHED_SHARE = 0.1
"""The share of the GPU's memory that one timed shape's right answer may keep; all of them may take three times that."""


@dataclass
class Opened:
    """One judge's task: device is "cuda" or "cpu", launches has the traced launches by shape.

    twin asks for float32 in place of 16-bit floats. All tensors are on device, unless a docstring says otherwise.
    """

    task: Any
    facts: TaskFacts
    target: Target
    device: str
    launches: dict[str, Any]
    _timed: dict[Case, tuple[Expectation, list[Any]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.inputs = cache(self.inputs)
        self.before = cache(self.before)
        self.expected = cache(self.expected)
        self.built = cache(self.built)
        self.seed_run = cache(self.seed_run)

    @property
    def twin(self) -> bool:
        """True if kernels run in the interpreter here, with float32 twins of 16-bit floats."""
        return self.device == "cpu"

    def judged_shapes(self) -> list[str]:
        """The keys of the test shapes, else of the timed shapes."""
        return [s.key for s in self.facts.test_shapes or self.facts.shapes]

    def inputs(self, case: Case, twin: bool) -> list[Any]:
        """The inputs of a case."""
        if case.probe is not None:
            return apply_probe(self.inputs(replace(case, probe=None), twin), Probe(*case.probe))
        if case.padded:
            return [tensors.padded(v) for v in self.inputs(replace(case, padded=False), twin)]
        built = self.built(case.shape)
        values = [twin_tensor(v) for v in built.inputs] if twin else list(built.inputs)
        how = {"names": built.names, "domain": self.task.domain, "rows": self._rows(case.shape)}
        return regimes.make(values, case.regime, case.seed, **how)

    def before(self, case: Case, twin: bool) -> list[Any]:
        """The inputs of a case before it ran, on the CPU."""
        return [_cpu(v) for v in self.inputs(case, twin)]

    def expected(self, case: Case, twin: bool) -> Expectation:
        """The right answer of a case and its limits, on the CPU."""
        built, inputs = self.built(case.shape), self.inputs(case, twin)
        strides = () if case.padded else self._strides(case.shape)
        return _on_cpu(self._expectation(case, built, inputs, twin and case.half, strides))

    def timed(self, case: Case) -> tuple[Expectation, list[Any]]:
        """The right answer and inputs of a timed shape, in GPU memory; kept for the next candidate if there is room."""
        if case in self._timed:
            return self._timed[case]
        before = torch.cuda.memory_allocated()
        built = self.task.build(case.shape, case.seed, self.device)
        answer = self._expectation(case, built, built.inputs), list(built.inputs)
        torch.cuda.empty_cache()  # the run worker gets the reference's intermediate memory
        memory = device_memory()
        small = torch.cuda.memory_allocated() - before <= CACHED_SHARE * memory and before <= 2 * CACHED_SHARE * memory
        if small and torch.cuda.mem_get_info()[0] > memory / 2:
            self._timed[case] = answer
        return answer

    def _expectation(
        self, case: Case, built: Any, inputs: Sequence[Any], twin: bool = False, strides: tuple[Any, ...] = ()
    ) -> Expectation:
        def eager(*inputs: Any) -> Any:
            with self._reference_at(case), TwinMode() if twin else nullcontext():
                return built.reference(*inputs)

        return expectation(
            built.reference64,
            eager,
            inputs,
            shape=case.shape,
            regime=case.regime,
            precision=self.task.precision,
            mutates=self.mutated(case),
            strides=strides,
            seed=case.seed,
            tolerance=self.task.tolerance or 1.0,
        )

    @contextmanager
    def _reference_at(self, case: Case) -> Iterator[None]:
        """Turns an error of the user's reference on judging inputs into a TaskError that names the inputs."""
        try:
            yield
        except MemoryError:  # the worker's child answers it
            raise
        except USER_ERRORS as error:
            every = (*self.facts.test_shapes, *self.facts.shapes)
            label = next((s.label for s in every if s.key == case.shape), case.shape)
            file, inputs = self.task.path, f"inputs of regime {case.regime!r}"
            raise TaskError(
                f"{file.name}: the reference fails at {label} with {inputs}: {said(error, file)}"
            ) from error

    def keeps_timed(self, case: Case) -> bool:
        return case in self._timed

    def built(self, shape: str) -> Any:
        """The case of a shape with its weights, and inputs that the regimes replace."""
        with nullcontext() if self.device == "cuda" else standin.standing_in(self.target, "cpu"):
            return self.task.build(shape, 0, self.device)

    def mutated(self, case: Case) -> tuple[int, ...]:
        """The positions of the inputs that the task declares as mutated."""
        names = self.built(case.shape).names
        return tuple(names.index(n) for n in self.task.mutates if n in names)

    def halved(self, case: Case) -> Case:
        """The case with half set if a kernel gets a 16-bit float at its shape."""
        launches = self.seed_run(case.shape).launches
        facts = (a for launch in launches for a in trace.launch_fact(launch).args.values())
        return replace(case, half=any(isinstance(a, TensorFact) and a.dtype in ("bf16", "fp16") for a in facts))

    def seed_run(self, shape: str) -> Any:
        """The launches and results of the seed's launcher at a shape; its kernels do not run."""
        return trace.run(self.task, shape, self.target)

    def _strides(self, shape: str) -> tuple[Any, ...]:
        """The strides of the seed's outputs, which every candidate must keep."""
        return tuple(tuple(o.stride()) for o in self.seed_run(shape).outputs)

    def _rows(self, shape: str) -> int | None:
        """The length of the first output's first axis, along which regimes are mixed."""
        first = next(iter(self.seed_run(shape).outputs), None)
        return first.shape[0] if first is not None and first.dim() else None


def device_memory() -> int:
    """Bytes of the GPU's memory."""
    return torch.cuda.get_device_properties(0).total_memory


def _cpu(value: Any) -> Any:
    return value.cpu() if hasattr(value, "cpu") else value


def _on_cpu(expected: Expectation) -> Expectation:
    """The same expectation with its tensors on the CPU."""

    def move(part: Any) -> Any:
        return part and replace(part, **{name: _cpu(value) for name, value in vars(part).items()})

    return replace(expected, outputs=tuple(replace(move(o), limits=move(o.limits)) for o in expected.outputs))
