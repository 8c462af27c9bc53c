"""Runs TorchInductor on a task's reference up to the Triton source that it writes, with or without a GPU.

The reference is traced on fake tensors of `cpu:0`, which Inductor is told to treat as a GPU with the target's facts: so
nothing is allocated, compiled or launched, and the source is the same on every machine. Integers of the shape that
differ between the task's shapes become symbols; the source is then right for all of them.
"""

from __future__ import annotations

import math
import re
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from typing import Any
from unittest import mock

import torch
import torch._functorch._aot_autograd.graph_compile as graph_compile
import torch._inductor.compile_fx as compile_fx
import torch._inductor.config as config
import torch._inductor.ir as ir
import torch._inductor.scheduler as scheduler
import torch._inductor.utils as utils
from torch._dispatch.python import enable_python_dispatcher
from torch._inductor.choices import InductorChoices
from torch._inductor.codegen.cpu_device_op_overrides import CpuDeviceOpOverrides
from torch._inductor.codegen.triton import TritonKernel
from torch._inductor.dependencies import MemoryDep
from torch._inductor.graph import GraphLowering
from torch._inductor.kernel import bmm, mm
from torch._inductor.runtime.hints import DeviceProperties, ReductionHint
from torch._inductor.virtualized import V
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv
from torch.nn.attention import SDPBackend, sdpa_kernel
from triton.runtime import driver

from kernelsearch.core.errors import TaskError
from kernelsearch.core.plugins import describe_error
from kernelsearch.kernel.targets import Target
from kernelsearch.propose.inductor import attention, column_sums
from kernelsearch.propose.inductor.column_sums import NotSummed
from kernelsearch.propose.inductor.kernel_text import NotConvertible
from kernelsearch.propose.inductor.module_text import LibraryCallsOnly
from kernelsearch.propose.inductor.task_file import (
    PRODUCTS,
    SLOW_PRODUCTS,
    InductorSeed,
    read_seed,
    write_start,
    write_task_file,
)
from kernelsearch.tasks.module import USER_ERRORS
from kernelsearch.tasks.task import Task
from kernelsearch.worker.launcher import seed_shapes
from kernelsearch.worker.launcher.column_sums import take_column_sums
from kernelsearch.worker.launcher.early_sums import move_sums
from kernelsearch.worker.launcher.flat_reference import DEVICE, flatten
from kernelsearch.worker.launcher.fusion import fuse_more
from kernelsearch.worker.launcher.inductor_configs import read_configs
from kernelsearch.worker.launcher.opening import open_task
from kernelsearch.worker.launcher.replaced import (
    LARGEST_WINDOW,
    REPLACED,
    REPLACED_LATE,
    Replacing,
    holds_late,
    prefers_channels_last,
    sums_windows,
)
from kernelsearch.worker.launcher.splits import split_between_axes
from kernelsearch.worker.launcher.standin import install_driver, pretend_gpu, replace_attributes
from kernelsearch.worker.launcher.symbols import (
    BecameConstant,
    carry_hidden,
    check_guards,
    drop_maxima,
    find_factors,
    keep_len,
    make_symbol,
    take_symbols,
)
from kernelsearch.worker.launcher.watch import Refused, inline_numbers, may_be_faster, watch

LONGEST_PERSISTENT = 8192
"""Elements of a contiguous row that one program is given at once; longer rows are looped over."""
LONGEST_WHOLE = 65536
"""The same for the other start. Rows across memory, which are read by columns, may have a 128th of both."""
LOOPED, WHOLE, SUMMED = "looped", "whole", "summed"
_LOST = r"^(\w+) .*is not tracked with proxy|expected \[(.+?)\] to have been codegen-ed"
"""What is said of symbols that cannot be followed, and of those that no input has as a size of its own."""


def warm_up(target: Target) -> None:
    """Runs Inductor on a softmax, because its first run in a process takes two seconds longer than others."""
    with torch.no_grad(), FakeTensorMode():
        graph = make_fx(lambda x: x.softmax(-1))(x := torch.empty(64, 300, device=DEVICE))
    with torch.no_grad(), _stand_in(target, "", False):
        read_configs(_lower(graph, [x]))


def write_seeded_task(path: str, target: Target) -> tuple[str, str]:
    """(A task file's text with Inductor's kernels as its seed, a kernel file with another start or "").

    Raises TaskError. The other start loops over rows that the seed's programs hold as a whole, or the other way round.
    """
    task = open_task(path, target, need_kernel=False)
    if task.form == "bare":
        raise TaskError(f"{task.path.name} has no reference")
    if (spread := seed_shapes.spread_test_shapes(task, target)) is not None:
        with suppress(TaskError):
            return _write_seed(spread, target, True)
    return _write_seed(task, target, False)


def _write_seed(task: Task, target: Target, spread: bool) -> tuple[str, str]:
    """The same for a task; spread says that its test shapes are not those that its file gives by itself."""
    try:
        try:
            seed, fixed = _generate_readable(task, target)
            start = _write_other_start(task, target, seed)
        except LibraryCallsOnly:
            (seed, fixed), start = generate_source(task, target, products=True), ""
        text = write_task_file(task.path.read_text(encoding="utf-8"), seed)
    except NotConvertible as why:
        raise TaskError(f"{task.path.name}: TorchInductor's code for its reference is no kernel file: {why}") from None
    if task.precision in ("tf32", "tf32x3"):
        text = text.replace("input_precision='ieee'", f"input_precision='{task.precision}'")
    slow = task.precision == "ieee" and seed.dtype == "torch.float32" and PRODUCTS.search(text)
    text += seed_shapes.write_test_shapes(task, fixed, seed.symbols, spread) + seed_shapes.write_domain(task)
    return text + (f"\n\n# {SLOW_PRODUCTS}\n" if slow else ""), start


def _generate_readable(task: Task, target: Target) -> tuple[InductorSeed, tuple[str, ...]]:
    """Inductor's work, with sums over rows in the rows' own kernel where it can take them. Raises NotConvertible."""
    try:
        read_seed((found := generate_source(task, target, SUMMED))[0])
        return found
    except NotSummed:
        return generate_source(task, target)


def _write_other_start(task: Task, target: Target, seed: InductorSeed) -> str:
    """A kernel file with Inductor's code under the other decision about rows; empty if that is the same code."""
    if not re.search(r"triton_(red|per)_", seed.text):
        return ""
    rows = LOOPED if "triton_per_" in seed.text else WHOLE
    try:
        return write_start(seed, generate_source(task, target, rows)[0])
    except (NotConvertible, TaskError):
        return ""


def generate_source(
    task: Task, target: Target, rows: str = "", products: bool | None = None
) -> tuple[InductorSeed, tuple[str, ...]]:
    """(Inductor's work for a task's reference at its first timed shape, the sizes that became constants).

    Raises TaskError.

    rows: LOOPED, they are always looped over; WHOLE, longer ones too are held by one program as a whole; SUMMED, what
    is summed over them is summed by their own kernel, where one has both.
    products: matrix products are kernels too, not library calls; None, where these could be faster.
    """
    base, varying = seed_shapes.find_varying(task)
    sizes = {name: 1 for name in varying if base[name] > 1}  # a symbol for 0 or 1 is a number to torch
    while True:
        try:
            seed, fixed, factors = _generate(task, target, base, sizes, rows, products)
            break
        except BecameConstant as error:
            base, sizes = seed_shapes.reconsider(task, base, sizes, error)
    if factors and all(base[name] > factor for name, factor in factors.items()):
        with suppress(BecameConstant, TaskError):
            other, others_fixed, _ = _generate(task, target, base, {**sizes, **factors}, rows, products)
            if other.text.count("async_compile.triton(") < seed.text.count("async_compile.triton("):
                seed, fixed = other, others_fixed
    return seed, fixed


def _generate(
    task: Task, target: Target, base: Mapping[str, Any], sizes: Mapping[str, int], rows: str, products: bool | None
) -> tuple[InductorSeed, tuple[str, ...], dict[str, int]]:
    """The same with each of these names as a symbol times its number, and the factors of sizes that were found.

    Raises TaskError or BecameConstant.
    """
    env = ShapeEnv(duck_shape=False)
    fake = FakeTensorMode(shape_env=env, allow_non_fake_inputs=True)
    symbols = {name: make_symbol(env, name, base[name], factor) for name, factor in sizes.items()}
    try:
        with torch.no_grad(), fake, enable_python_dispatcher(), drop_maxima(env), Replacing(), keep_len(task.module):
            with pretend_gpu(target, DEVICE), torch.device(DEVICE), take_symbols():
                function, inputs, names, parameters, given = flatten(task, {**base, **symbols})
            watched = watch(function, names, bool(task.mutates))
            hidden, carrier = carry_hidden(symbols, inputs, given)
            with sdpa_kernel(SDPBackend.MATH) if products else nullcontext():
                graph = make_fx(lambda *given: watched(*given[: len(names)]), REPLACED)(*inputs, *carrier)
                if move_sums(graph) or holds_late(graph):
                    graph = make_fx(graph, {**REPLACED, **REPLACED_LATE})(*inputs, *carrier)
                if rows == SUMMED:
                    graph = take_column_sums(graph, [*inputs, *carrier])
        if products is None:
            products = may_be_faster(graph, task.precision)
        inline_numbers(graph, DEVICE)
        channels_last, windows = prefers_channels_last(graph), sums_windows(graph)
        with torch.no_grad(), drop_maxima(env), _stand_in(target, rows, products, channels_last, windows):
            text = _lower(graph, [*inputs, *carrier])
            configs = {**read_configs(text), **{own.KERNEL: own.CONFIGS for own in (attention, column_sums)}}
    except (GuardOnDataDependentSymNode, DataDependentOutputException, DynamicOutputShapeException, Refused) as error:
        line, why = _find_line(error, task), str(error) if isinstance(error, Refused) else "depends on data"
        raise TaskError(f"{task.path.name}: TorchInductor makes no kernel of its reference: {line} {why}") from error
    except TaskError:
        raise
    except USER_ERRORS as error:
        found = re.search(_LOST, str(error))
        lost = re.findall(r"\w+", found[1] or found[2]) if found else []
        known = {name: env.replace(value.node.expr) for name, value in symbols.items()}
        constant = [name for name, value in known.items() if not value.free_symbols or str(value) in lost]
        if constant:
            raise BecameConstant(constant, factors=find_factors(env, symbols, inputs)) from None
        what = describe_error(error, task.path)
        raise TaskError(f"{task.path.name}: TorchInductor makes no kernel of its reference: {what}") from error
    check_guards(env, symbols, [params for _, params in (*task.shapes, *task.test_shapes)])
    numbers = tuple(i for i, value in enumerate(inputs) if value.device == torch.device("cpu"))
    known = {name: env.replace(value.node.expr) for name, value in symbols.items()}
    free = {name: str(value) for name, value in known.items() if value.free_symbols}
    fixed = tuple(name for name in seed_shapes.find_varying(task)[1] if name not in free)
    dtypes = {str(value.dtype) for i, value in enumerate(inputs) if i not in numbers}
    dtype = dtypes.pop() if len(dtypes) == 1 else ""
    seed = InductorSeed(text, tuple(names), configs, free, task.form, parameters, numbers, dtype, products, hidden)
    return seed, fixed, find_factors(env, symbols)


def _find_line(error: BaseException, task: Task) -> str:
    """The place in the user's file where an error came from."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == str(task.path)]
    return f"line {frames[-1].lineno} ({frames[-1].line})" if frames else "it"


@contextmanager
def _stand_in(target: Target, rows: str, products: bool, last: bool = False, windows: bool = False) -> Iterator[None]:
    """Within the context, Inductor takes the CPU for a GPU with the target's facts. last: with channels last."""
    major, threads = target.capability // 10, target.warps_per_sm * target.warp_size
    facts = (target.num_sms, target.capability, major, target.registers_per_sm, threads, 1024, target.warp_size)
    properties = DeviceProperties("cuda", 0, *facts)

    class Choices(InductorChoices):
        @staticmethod
        def should_use_persistent_reduction(features: Any, cooperative_reduction: bool) -> bool:
            if rows == LOOPED or cooperative_reduction or _is_product(features):
                return False
            length = V.graph.sizevars.optimization_hint(features.reduction_numel)
            longest = LONGEST_WHOLE if rows == WHOLE else LONGEST_PERSISTENT
            return bool(length <= (longest if _reads_along_rows(features) else longest // 128))

    def block(length: Any) -> int:
        return 1 << max(0, math.ceil(math.log2(V.graph.sizevars.optimization_hint(length))))

    more: dict[str, Any] = {"realize_opcount_threshold": 16 * LARGEST_WINDOW} if windows else {}
    with ExitStack() as stack:
        stack.enter_context(replace_attributes(driver, _active=driver._active, _default=driver._default))
        install_driver(target)
        for owner, name, value in (
            (DeviceProperties, "create", classmethod(lambda cls, device: properties)),
            (utils, "GPU_TYPES", ["cpu"]),
            (CpuDeviceOpOverrides, "device_guard", lambda self, index: "torch.no_grad()"),  # older: `with pass:`
            (GraphLowering, "is_unspec_arg", _is_number),
            (scheduler, "has_triton", lambda: True),
            (scheduler.BaseSchedulerNode, "is_cpu", lambda self: False),  # loops are not reordered for a CPU
            (ir, "is_cpu", lambda node: False),  # exponentials are not stored because two kernels read them
            (graph_compile, "_apply_tensorify_python_scalars", lambda *args: None),  # it wants Dynamo's placeholders
            (TritonKernel, "_get_persistent_RBLOCK", staticmethod(block)),
            (mm, "use_native_matmul", lambda *tensors: products and _realize(tensors)),
            (bmm, "use_native_matmul", lambda *tensors: products and _realize(tensors)),
            (ir.Scan, "num_splits", classmethod(lambda cls, **kwargs: (ReductionHint.INNER, 1))),
        ):
            stack.enter_context(mock.patch.object(owner, name, value))
        stack.enter_context(fuse_more())
        stack.enter_context(split_between_axes())
        stack.enter_context(V.set_choices_handler(Choices()))
        stack.enter_context(
            config.patch(
                cpu_backend="triton",
                compile_threads=1,
                fx_graph_cache=False,
                force_disable_caches=True,
                joint_graph_constant_folding=False,
                inplace_buffers=False,
                allow_buffer_reuse=False,
                comprehensive_padding=False,
                size_asserts=False,
                alignment_asserts=False,
                assert_indirect_indexing=False,
                layout_optimization=last,
                force_layout_optimization=last,
                realize_acc_reads_threshold=4 * LARGEST_WINDOW,
                split_reductions=rows != LOOPED,  # else its launches are other ones than those of whole rows
                **{
                    **more,
                    "triton.native_matmul": products,
                    "triton.prefer_nd_tiling": True,
                    "triton.tiling_prevents_reduction_fusion": False,  # it takes equal sums of symbols for unequal
                },
            )
        )
        yield


def _reads_along_rows(features: Any) -> bool:
    """True if neighbours of a reduction are neighbours in memory."""
    reads = [d for node in features.reduction_nodes() for d in node.read_writes.reads if isinstance(d, MemoryDep)]
    direct = [d for d in reads if d.var_names and not d.is_indirect()]
    return all(V.graph.sizevars.stride_hints(d.index, [d.var_names[-1]])[0] in (0, 1) for d in direct)


def _is_product(features: Any) -> bool:
    return any(getattr(node.node.data, "reduction_type", "") == "dot" for node in features.reduction_nodes())


def _realize(operands: Sequence[Any]) -> bool:
    """Has a product's operands computed before it: in its loop they would be computed for each of its tiles."""
    for operand in operands:
        operand.realize()
    return True


def _is_number(graph: Any, name: str) -> bool:
    """True for an input that stands for a Python number; other tensors without axes are tensors of the GPU."""
    value = graph.graph_inputs_original.get(name)
    return value is not None and value.get_device() == torch.device("cpu")


class _Written(BaseException):
    """Ends Inductor's work when its source is there; Inductor wraps each Exception in one of its own."""


def _lower(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> str:
    """The source that Inductor writes for a graph."""
    written: list[str] = []

    def keep(code: str, *rest: Any) -> None:
        written.append(code)
        raise _Written

    with mock.patch.object(GraphLowering, "save_output_code", staticmethod(keep)), suppress(_Written):
        compile_fx.compile_fx(graph, list(inputs))
    return written[0] if written else ""  # for a graph without operations
