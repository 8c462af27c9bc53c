"""Compiles what a package launches, in each way in which Triton specialises it at the sizes that it claims.

The launcher runs without its kernels at the judged shapes and at sizes between them; the launches that the package's
tree would make there say what is compiled. A compile worker does that, as in a search: no GPU is needed.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from kernelsearch.compile.build import Binary, check_binary
from kernelsearch.compile.tensor_maps import MAP, count_axes, expand_kinds, is_descriptor_kind, list_flags
from kernelsearch.core.errors import KernelsearchError, TargetError, WorkerError
from kernelsearch.core.formats import Claims, list_spans
from kernelsearch.core.tree_walk import choose
from kernelsearch.core.types import Config, TensorFact
from kernelsearch.export.examine import Input, describe_input
from kernelsearch.export.exported_task import ExportedTask
from kernelsearch.export.tables import fit_trees, format_json, join_dtypes, list_keys, sizes_of
from kernelsearch.kernel.launch import TRITON_DTYPES, Specialisation, bind_launch
from kernelsearch.kernel.source import Kernel
from kernelsearch.kernel.targets import Target, target_by_name, target_for_device
from kernelsearch.tasks.task import Params
from kernelsearch.worker.launcher import trace
from kernelsearch.worker.messages.jobs import Compile
from kernelsearch.worker.processes.pool import Workplace
from kernelsearch.worker.processes.workers import WorkerDied, WorkerHung

MOST = 300
"""Shapes between the judged ones at which the launcher runs, of each dtype."""
LIMIT_S = 100.0
"""Processor time of one compile."""
CODES = {"i1", "u1", *(f"{sign}{bits}" for sign in "iu" for bits in (8, 16, 32, 64)), "fp16", "fp32", "fp64"}
"""Types of numbers that a package can pass."""


@dataclass(frozen=True)
class Packed:
    """The files of a package's folder `binaries` by name, their compute capabilities, and in words what has none."""

    files: Mapping[str, bytes] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Wanted:
    """One binary to compile: a specialisation of a kernel of a task, for a machine."""

    part: ExportedTask
    kernel: Kernel
    spec: Specialisation
    target: Target


def pack_binaries(
    parts: Sequence[ExportedTask], targets: Sequence[str] = (), tell: Callable[[str], None] = lambda text: None
) -> Packed:
    """The binaries for the devices of the evidence and for these targets. Raises TargetError for an unknown one."""
    machines = check_targets(targets)
    wanted: dict[tuple[int, str], _Wanted] = {}
    missing: list[str] = []
    for part in parts:
        for device in part.chosen.devices:
            try:
                machines.setdefault(device, target_for_device(device, 0))
            except TargetError as error:
                missing.append(f"no binaries for {device}: {error}; Triton compiles there at the first call")
        names = {target_for_device(d, 0).name for d in part.chosen.devices if d in machines}
        said = "is compiled for, and runs the reference until the task is searched there too"
        missing += [f"{part.name}: {name} {said}" for name in check_targets(targets) if name not in names]
        for name, machine in machines.items():
            if machine.gfx:
                missing.append(f"no binaries for {name}: a package launches them through NVIDIA's driver")
                continue
            tell(f"finding what {part.name} launches on {machine.name}")
            devices = [name] if name in part.chosen.devices else list(part.chosen.devices)
            for made in _list_wanted(part, machine, devices):
                name = f"{part.folder}.{part.module_of(made.kernel.digest)}:{made.spec.function}"
                wanted.setdefault((machine.capability, f"{name} {write_key(made)}"), made)
    with Workplace() as workplace:
        pool = workplace.pool("compile", len(os.sched_getaffinity(0)))
        with ThreadPoolExecutor(pool.size) as threads:
            built = threads.map(partial(_build, pool), wanted.values())
            answers = {}
            for number, (key, answer) in enumerate(zip(wanted, built, strict=False), 1):
                tell(f"compiling for the package, {number} of {len(wanted)} binaries")
                answers[key] = answer
    failed = {key: answer for key, answer in answers.items() if isinstance(answer, str)}
    for capability in sorted({capability for capability, _ in failed}):
        here = [why for (own, _), why in failed.items() if own == capability]
        of = sum(own == capability for own, _ in wanted)
        said = f"no binary in {len(here)} of {of} ways of compiling for compute capability {capability / 10}"
        missing.append(f"{said} ({here[0]}); Triton compiles these at their first call")
    binaries = {key: answer for key, answer in answers.items() if isinstance(answer, Binary)}
    capabilities = tuple(f"{capability / 10}" for capability in sorted({capability for capability, _ in binaries}))
    return Packed(_write_files(wanted, binaries), tuple(missing), capabilities)


def check_targets(names: Sequence[str]) -> dict[str, Target]:
    """The machines of these names; auto is none of its own. Raises TargetError for an unknown one."""
    return {name: target_by_name(name) for name in names if name != "auto"}


def _build(pool: Any, made: _Wanted) -> Binary | str:
    """The binary, or why there is none."""
    job = Compile(made.kernel.code, made.kernel.digest, (made.spec,), made.target, made.part.examined.task.precision)
    try:
        answer = pool.ask(job, LIMIT_S)
        if answer.verdict is not None:
            return " ".join(answer.verdict.reason.split())
        binary = check_binary(answer.binaries[0])
    except (WorkerDied, WorkerHung, WorkerError, ValueError) as error:
        return f"the compiler failed: {error}"
    odd = [kind for _, kind in binary.params if kind[0] != "*" and not is_descriptor_kind(kind) and kind not in CODES]
    return f"a number of type {odd[0]} cannot be passed" if odd else binary.unsupported or binary


# ---------------------------------------------------------------- what is launched


def _list_wanted(part: ExportedTask, machine: Target, devices: Sequence[str]) -> Iterator[_Wanted]:
    e, seed = part.examined, part.seed
    tables = [(b, list_keys(part, b), fit_trees(part, d)) for d in devices for b in [part.chosen.devices[d]]]
    for params in (*map(e.task.params, e.keys), *draw_sizes(part)):
        if (run := _run(part, params, machine)) is None:
            continue
        for kernel, settings in _choose_kernels(part, run, tables):
            for launch in run.launches:
                (fact,) = trace.make_trace("", [launch], settings).launches
                grid = launch.resolve_grid
                how = (kernel, settings, seed, part.seed_config, e.facts.sites, fact, grid, machine.num_sms)
                try:
                    bound = bind_launch(*how)
                except KernelsearchError:  # the package launches none of that there either
                    continue
                for spec in bound.specialise_steps(fact):
                    yield _Wanted(part, bound.kernel, spec, machine)


def _run(part: ExportedTask, params: Params, machine: Target) -> trace.LauncherRun | None:
    """The launcher at a shape, without its kernels; None where it takes none such."""
    try:
        return trace.run_launcher(replace(part.examined.task, test_shapes=(("test:0", params),)), "test:0", machine)
    except KernelsearchError:
        return None


def _choose_kernels(
    part: ExportedTask, run: trace.LauncherRun, tables: Sequence[tuple[Any, list[str], Any]]
) -> Iterator[tuple[Kernel, Config]]:
    """The kernels and configs that the package chooses for such inputs, by a device's tree."""
    e = part.examined
    inputs = [describe_input(v, n, e.task.path.name) for n, v in zip(run.case.names, run.case.inputs, strict=True)]
    values = [(i.name, v) for i, v in zip(e.inputs, inputs, strict=True)]
    sizes, dtypes = sizes_of(values), join_dtypes(values)
    if is_claimed(e.inputs, inputs, part.chosen.claims):
        for by_shape, keys, trees in tables:
            if dtypes in trees:
                found = by_shape[keys[int(choose(trees[dtypes], sizes))]]
                yield found.kernel, found.config


def is_claimed(judged: Sequence[Input], inputs: Sequence[Any], claims: Claims) -> bool:
    """Whether each tensor has a judged dtype, and sizes within the judged ones."""
    for own, value in zip(judged, inputs, strict=True):
        facts = [v for v in own.values if isinstance(v, TensorFact)]
        if not isinstance(value, TensorFact):
            continue
        if value.dtype not in {f.dtype for f in facts} or len(value.shape) != len(facts[0].shape):
            return False
        spans = [list_spans(axis, claims) for axis in zip(*(f.shape for f in facts), strict=True)]
        if not all(any(a <= n <= b for a, b in own) for n, own in zip(value.shape, spans, strict=True)):
            return False
    return True


def draw_sizes(part: ExportedTask) -> list[Params]:
    """Shapes between the judged ones, for each way in which Triton may specialise a kernel there.

    Each size runs through the powers of two with a size above each, as tiles follow them, while the others are
    multiples of 16; then sizes are drawn, each a multiple of 16, one less, odd, the least or as it is, as what a launch
    computes of them is specialised too.
    """
    task, rng = part.examined.task, random.Random(0)
    own = [*map(task.params, task.keys)]
    whole = [n for n in own[0] if all(type(p.get(n)) is int and p[n] > 0 for p in own)]
    spans = {n: (min(p[n] for p in own), max(p[n] for p in own)) for n in whole}
    tied = {n: next(m for m in spans if all(p[m] == p[n] for p in own)) for n in spans}
    free = [n for n in spans if tied[n] == n and spans[n][0] < spans[n][1]]
    even = {n: max(sum(spans[n]) // 32 * 16, spans[n][0]) for n in free}
    tiles = [size for i in range(40) for size in (1 << i, 3 << i, (1 << i) + 1)]
    sizes = [{**even, n: size} for n in free for size in tiles if spans[n][0] <= size <= spans[n][1]]
    while free and len(sizes) < MOST:
        sizes.append({n: _draw_size(rng, *spans[n]) for n in free})
    others = [{n: v for n, v in p.items() if n not in spans} for p in own]
    bases = [p for n, p in enumerate(own) if others[n] not in others[:n]]
    drawn = [{**base, **{n: size.get(tied[n], base[n]) for n in spans}} for size in sizes for base in bases]
    return [p for n, p in enumerate(drawn) if p not in own and p not in drawn[:n]]


def _draw_size(rng: random.Random, low: int, high: int) -> int:
    size = round(low * (high / low) ** rng.random())
    size = rng.choice((size // 16 * 16, size // 16 * 16 - 1, size | 1, low, size))
    return min(max(size, low), high)


# ---------------------------------------------------------------- what the package reads


def write_key(made: _Wanted) -> str:
    """The key of a binary, as the package's `_binaries.py` writes it for a launch's arguments."""
    spec, order = made.spec, made.kernel.function(made.spec.function).params
    constants = dict(spec.constexprs)
    own = {n: f":{kind}{'/16' * (n in spec.divisible)}" for n, kind in spec.signature}
    own |= {n: f"={getattr(constants[n], 'name', repr(constants[n]))}" for n, k in spec.signature if k == "constexpr"}
    words = [f"{n}{own[n]}" for n in order]
    return " ".join([*words, *(f"{n}={v!r}" for n, v in sorted(spec.options) if v is not None)])


def _write_files(
    wanted: Mapping[tuple[int, str], _Wanted], built: Mapping[tuple[int, str], Binary]
) -> dict[str, bytes]:
    """The cubins, each once, and the manifest, which begins with the hash of all that follows in it."""
    files: dict[str, bytes] = {}
    facts: dict[str, Any] = {}
    binaries: dict[str, Any] = {}
    for (capability, key), binary in sorted(built.items()):
        digest = hashlib.sha256(binary.cubin).hexdigest()
        name = f"{digest[:20]}.cubin"
        files[name] = binary.cubin
        facts[name] = {"sha256": digest, "name": binary.name, "shared": binary.shared, "ctas": binary.num_ctas}
        binaries[f"{capability / 10} {key}"] = {"file": name, **_describe(wanted[capability, key].spec, binary)}
    capabilities = sorted({key.split()[0] for key in binaries}, key=float)
    rest = {"capabilities": capabilities, "dtypes": TRITON_DTYPES}
    text = format_json({**rest, "files": facts, "binaries": binaries})
    held = f'{{"sha256": "{hashlib.sha256(text.encode()).hexdigest()}"}}\n'
    return {**files, "manifest.json": (held + text).encode()} if files else {}


def _describe(spec: Specialisation, binary: Binary) -> dict[str, Any]:
    """How a binary is launched; params are the machine's: (argument, its part that a descriptor gives, type)."""
    roles = []
    kinds = [kind for _, kind in binary.params]
    for number, (name, kind) in enumerate(binary.params):
        machine = [part for index, part in expand_kinds(kinds, bool(binary.maps)) if index == number]
        axes = range(count_axes(kind))
        sizes = [f"{word}.{axis}" for word in ("shape", "strides") for axis in axes]
        first = ["map"] if MAP in machine else ["base", *sizes, *list_flags()]
        parts = [*first, *sizes] if is_descriptor_kind(kind) else [""]
        roles += [[name, role, part] for role, part in zip(parts, machine, strict=True)]
    options = dict(spec.options)
    return {
        "params": roles,
        "spare": max(0, binary.mix.parameters - len(roles)),
        "warps": binary.num_warps,
        "ctas": binary.num_ctas,
        "shared": binary.shared,
        "scratch": binary.scratch_bytes,
        "maps": [vars(m) for m in binary.maps],
        "overlaps": bool(options.get("launch_pdl")),
        "cooperative": bool(options.get("launch_cooperative_grid")),
    }
