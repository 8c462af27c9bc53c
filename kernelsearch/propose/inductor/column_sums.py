"""Sums over rows in a seeded file: the kernel of the rows sums what it would store, a second one adds its parts.

PARTS programs take the rows by turns, as in the backward pass of a hand-written norm, so that nothing is read twice.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.canonical import find_pointer_params
from kernelsearch.propose.inductor.kernel_text import KernelText, NotConvertible
from kernelsearch.propose.inductor.module_text import Allocation, KernelRun, ModuleText

OP = "kernelsearch.sum_rows"
KERNEL = "sum_parts_kernel"
GRID = "(triton.cdiv({xnumel}, meta['XBLOCK']),)"
SPACE = {"PARTS": (32, 64, 128, 256, 512), "STAGES": (1, 2, 3, 4)}
"""How many programs may share the rows, and how many rows ahead one loads. A launcher allocates for the most parts."""
CONFIGS = tuple({"XBLOCK": columns, "num_warps": 4} for columns in (32, 16, 64))
TEXT = f"""
@triton.jit
def {KERNEL}(parts_ptr, out_ptr, xnumel, PARTS: tl.constexpr, XBLOCK: tl.constexpr):
    columns = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[None, :]
    parts = tl.load(parts_ptr + tl.arange(0, PARTS)[:, None] * xnumel + columns, mask=columns < xnumel, other=0.0)
    tl.store(out_ptr + columns, tl.sum(parts, axis=0)[None, :], mask=columns < xnumel)
""".strip()
Step = KernelRun | Allocation | str
_GIVEN = {"PARTS": 256, "STAGES": 1}  # more stages may need more shared memory than there is
_STEP = re.compile(rf"(\w+) = torch\.ops\.{re.escape(OP)}\.default\((\w+), (torch\.\w+)\)")


class NotSummed(NotConvertible):
    """No kernel of whole rows computes what is summed over rows."""


def make_kernel() -> KernelText:
    """The kernel that adds the parts; its first parameters are those of a launch."""
    return KernelText(
        KERNEL, {KERNEL: TEXT}, ("parts_ptr", "out_ptr", "xnumel"), ("XBLOCK",), given={"PARTS": _GIVEN["PARTS"]}
    )


def launch_sums(module: ModuleText) -> tuple[ModuleText, Mapping[str, Sequence[int]]]:
    """(The module with launches in the place of the operation, which arguments of which kernels are summed).

    Raises NotSummed.
    """
    found = {m[2] for step in module.steps if isinstance(step, str) and (m := _STEP.fullmatch(step))}
    steps, summed, columns = list[Step](), dict[str, list[int]](), dict[str, str]()
    for step in module.steps:
        match step:
            case Allocation(name=name, shape=shape) if name in found:
                columns[name] = tree.text_of(tree.expression(shape).elts[-1])  # type: ignore[attr-defined]
                steps.append(replace(step, shape=f"({SPACE['PARTS'][-1]}, {columns[name]})"))
            case KernelRun(kernel=kernel, arguments=arguments):
                for name in found & set(arguments):
                    summed.setdefault(kernel, []).append(arguments.index(name))
                steps.append(step)
            case str() if OP in step:
                own = _STEP.fullmatch(step)
                if own is None or own[2] not in columns:
                    raise NotSummed("an operand of a sum over rows is not made by a kernel")
                out, parts, dtype = own.groups()
                steps.append(Allocation(out, f"({columns[parts]},)", None, dtype))
                steps.append(KernelRun(KERNEL, (parts, out, columns[parts])))
            case _:
                steps.append(step)
    if sum(map(len, summed.values())) != len(found):
        raise NotSummed("an operand of a sum over rows is read elsewhere")
    grids = {**module.grids, **dict.fromkeys(summed, "(meta['PARTS'],)"), **({KERNEL: GRID} if found else {})}
    kernels = {**module.kernels, **({KERNEL: ""} if found else {})}
    return replace(module, steps=tuple(_drop_copies(steps)), grids=grids, kernels=kernels), summed


def _drop_copies(steps: Sequence[Step]) -> Iterator[Step]:
    """The steps without `other = result` behind a sum: it has the other name at once."""
    names = dict[str, str]()
    made = {step.arguments[1] for step in steps if isinstance(step, KernelRun) and step.kernel == KERNEL}
    for step in steps:
        if isinstance(step, str) and (copy := re.fullmatch(r"(\w+) = (\w+)", step)) and copy[2] in made:
            names[copy[2]] = copy[1]
    for step in steps:
        if isinstance(step, str):
            if not any(step == f"{new} = {old}" for old, new in names.items()):
                yield step
        elif isinstance(step, Allocation):
            yield replace(step, name=names.get(step.name, step.name))
        else:
            yield replace(step, arguments=tuple(names.get(a, a) for a in step.arguments))


def sum_stores(kernel: KernelText, positions: Sequence[int]) -> KernelText:
    """A kernel of whole rows with PARTS programs, each of which stores the sums of what it would store there.

    positions are those of the pointers among its parameters. Raises NotSummed.
    """
    node = tree.function_of(kernel.functions[kernel.name])
    pointers = [node.args.args[i].arg for i in positions]
    sums = {p: f"{p.removesuffix('_ptr')}_sums" for p in pointers}
    names = {a.arg for a in node.args.args} | tree.writes(node.body)
    if not {"XBLOCK", "R0_BLOCK", "xnumel", "r0_numel"} <= names or tree.loops(node.body):
        raise NotSummed("a kernel does not hold whole rows")
    first = next(i for i, s in enumerate(node.body) if tree.calls(s, "program_id"))
    before, rows = list(node.body[:first]), [tree.transform(s, _name_program) for s in node.body[first:]]
    for pointer in pointers:
        at = [i for i, s in enumerate(rows) if pointer in tree.reads(s)]
        match rows[at[0]] if len(at) == 1 else None:
            case ast.Expr(ast.Call(args=[_, value, mask])) if tree.is_tl(rows[at[0]].value, "store"):  # type: ignore[attr-defined]
                words = tree.text_of(value)
                words = words if tree.text_of(mask) == "None" else f"tl.where({tree.text_of(mask)}, {words}, 0.0)"
                rows[at[0]] = tree.statements(f"{sums[pointer]} += {words}")[0]
            case _:
                raise NotSummed("an operand of a sum over rows is more than stored")
    start = "".join(f"{name} = tl.zeros([XBLOCK, R0_BLOCK], tl.float32)\n" for name in sums.values())
    same, rows = _split_off_steady(rows, find_pointer_params(node))
    turns = "tl.range(tl.program_id(0), tl.cdiv(xnumel, XBLOCK), PARTS, num_stages=STAGES)"
    loop = tree.make_loop(f"for program in {turns}", rows)
    end = "columns = tl.arange(0, R0_BLOCK)\n" + "".join(
        f"tl.store({p} + tl.program_id(0) * r0_numel + columns, tl.sum({name}, axis=0), mask=columns < r0_numel)\n"
        for p, name in sums.items()
    )
    node.body = [*before, *same, *tree.statements(start), loop, *tree.statements(end)]
    node.args.args += [ast.arg(name, tree.expression("tl.constexpr")) for name in _GIVEN]
    text = ast.unparse(ast.fix_missing_locations(node))
    return replace(kernel, functions={**kernel.functions, kernel.name: text}, given=_GIVEN)


def _name_program(node: ast.AST) -> ast.AST | None:
    return ast.Name("program", ast.Load()) if tree.is_tl(node, "program_id") else None


def _split_off_steady(rows: Sequence[ast.stmt], pointers: set[str]) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """(The statements that are the same for all rows, the others): a weight is loaded once."""
    stored = {name for s in rows for call in tree.calls(s, "store") for name in tree.reads(call.args[0]) & pointers}
    moving, same, others = {"program"}, list[ast.stmt](), list[ast.stmt]()
    for stmt in rows:
        steady = isinstance(stmt, ast.Assign) and not tree.reads(stmt) & (moving | stored)
        (same if steady else others).append(stmt)
        moving |= set() if steady else tree.writes(stmt)
    return same, others
