"""The task that a judge serves, and what it has worked out so far: inputs, right answers, what the seed launches.

On a GPU machine expectations are computed on the GPU, so that eager's error is the GPU's own, and kept on the CPU,
so that judging a candidate disturbs nobody's timing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
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
"""Of the GPU's memory, what may be kept of one timed shape's right answer; all of them may take three times that."""


@dataclass
class Opened:
    """One judge's task: device is "cuda" or "cpu", launches holds the traced launches by shape.

    A case's `twin` asks for float32 in place of 16-bit floats. All tensors are on `device`, except where said.
    """

    task: Any
    facts: TaskFacts
    target: Target
    device: str
    launches: dict[str, Any]
    _inputs: dict[tuple[Case, bool], list[Any]] = field(default_factory=dict)
    _expected: dict[tuple[Case, bool], Expectation] = field(default_factory=dict)
    _before: dict[tuple[Case, bool], list[Any]] = field(default_factory=dict)
    _timed: dict[Case, tuple[Expectation, list[Any]]] = field(default_factory=dict)
    _built: dict[str, Any] = field(default_factory=dict)
    _runs: dict[str, Any] = field(default_factory=dict)

    @property
    def twin(self) -> bool:
        """Whether kernels run in the interpreter here, 16-bit floats as float32 twins."""
        return self.device == "cpu"

    def judged_shapes(self) -> list[str]:
        return [s.key for s in self.facts.test_shapes or self.facts.shapes]

    def inputs(self, case: Case, twin: bool) -> list[Any]:
        if (case, twin) in self._inputs:
            return self._inputs[case, twin]
        if case.probe is not None:
            found = apply_probe(self.inputs(replace(case, probe=None), twin), Probe(*case.probe))
        elif case.padded:
            found = [tensors.padded(v) for v in self.inputs(replace(case, padded=False), twin)]
        else:
            built = self.built(case.shape)
            values = [twin_tensor(v) for v in built.inputs] if twin else list(built.inputs)
            found = regimes.make(
                values, case.regime, case.seed, names=built.names, domain=self.task.domain, rows=self._rows(case.shape)
            )
        self._inputs[case, twin] = found
        return found

    def before(self, case: Case, twin: bool) -> list[Any]:
        """The inputs of a case as they were, on the CPU."""
        if (case, twin) not in self._before:
            self._before[case, twin] = [_cpu(v) for v in self.inputs(case, twin)]
        return self._before[case, twin]

    def expected(self, case: Case, twin: bool) -> Expectation:
        """The right answer of a case and its limits, on the CPU."""
        if (case, twin) not in self._expected:
            built = self.built(case.shape)

            def eager(*inputs: Any) -> Any:
                with self._reference_at(case), TwinMode() if twin and case.half else nullcontext():
                    return built.reference(*inputs)

            found = expectation(
                built.reference64,
                eager,
                self.inputs(case, twin),
                shape=case.shape,
                regime=case.regime,
                precision=self.task.precision,
                mutates=self.mutated(case),
                strides=() if case.padded else self._strides(case.shape),
                seed=case.seed,
                tolerance=self.task.tolerance or 1.0,
            )
            self._expected[case, twin] = _on_cpu(found)
        return self._expected[case, twin]

    def timed(self, case: Case) -> tuple[Expectation, list[Any]]:
        """The right answer and the inputs of a timed shape, in GPU memory; kept for the next candidate while there is room."""
        if case in self._timed:
            return self._timed[case]
        held = torch.cuda.memory_allocated()
        built = self.task.build(case.shape, case.seed, self.device)

        def eager(*inputs: Any) -> Any:
            with self._reference_at(case):
                return built.reference(*inputs)

        expected = expectation(
            built.reference64,
            eager,
            built.inputs,
            shape=case.shape,
            regime=case.regime,
            precision=self.task.precision,
            mutates=self.mutated(case),
            seed=case.seed,
            tolerance=self.task.tolerance or 1.0,
        )
        found = expected, list(built.inputs)
        torch.cuda.empty_cache()  # what the reference needed on the way is for the run worker
        memory = device_memory()
        small = torch.cuda.memory_allocated() - held <= CACHED_SHARE * memory and held <= 2 * CACHED_SHARE * memory
        if small and torch.cuda.mem_get_info()[0] > memory / 2:
            self._timed[case] = found
        return found

    @contextmanager
    def _reference_at(self, case: Case) -> Iterator[None]:
        """Turns what the user's reference raises on judging inputs into a TaskError that says on which."""
        try:
            yield
        except MemoryError:  # the machine's matter, and the child's to answer
            raise
        except USER_ERRORS as error:
            every = (*self.facts.test_shapes, *self.facts.shapes)
            label = next((s.label for s in every if s.key == case.shape), case.shape)
            file = self.task.path
            raise TaskError(
                f"{file.name}: the reference fails at {label} with inputs of regime {case.regime!r}: {said(error, file)}"
            ) from error

    def keeps_timed(self, case: Case) -> bool:
        return case in self._timed

    def built(self, shape: str) -> Any:
        """The case of a shape with its weights, and inputs that the regimes replace."""
        if shape not in self._built:
            if self.device == "cuda":
                self._built[shape] = self.task.build(shape, 0, "cuda")
            else:
                with standin.standing_in(self.target, "cpu"):
                    self._built[shape] = self.task.build(shape, 0, "cpu")
        return self._built[shape]

    def mutated(self, case: Case) -> tuple[int, ...]:
        """The places of the inputs that the task says it changes."""
        names = self.built(case.shape).names
        return tuple(names.index(n) for n in self.task.mutates if n in names)

    def halved(self, case: Case) -> Case:
        """The case, saying whether a kernel is passed a 16-bit float at its shape."""
        launches = self.seed_run(case.shape).launches
        facts = (a for launch in launches for a in trace.launch_fact(launch).args.values())
        return replace(case, half=any(isinstance(a, TensorFact) and a.dtype in ("bf16", "fp16") for a in facts))

    def seed_run(self, shape: str) -> Any:
        """What the seed's launcher launches and returns at a shape; its kernels do not run."""
        if shape not in self._runs:
            self._runs[shape] = trace.run(self.task, shape, self.target)
        return self._runs[shape]

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


def _on_cpu(found: Any) -> Any:
    """The same expectation with its tensors on the CPU."""

    def moved(part: Any) -> Any:
        if part is None:
            return None
        names = [n for n in part.__dataclass_fields__ if hasattr(getattr(part, n), "cpu")]
        return replace(part, **{n: getattr(part, n).cpu() for n in names})

    outputs = tuple(replace(moved(o), limits=moved(o.limits)) for o in found.outputs)
    return replace(found, outputs=outputs)
