"""The precision contract, checked in the compiler's texts: TTIR for the requested precision, PTX for what runs.

Because it reads the text, this check also sees a contract that is broken only for large shapes, or only within the
rounding of a 16-bit output. Texts are plain strings: no triton here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain

from kernelsearch.core.types import Verdict, Word

CONTRACTS = ("ieee", "tf32x3", "tf32", "half-accumulate")
"""The contracts of a task, strictest first: each allows everything that those before it allow.

`ieee`: float32 operands are multiplied as float32, sums are kept in float32. `tf32x3`: three tf32 products stand
for a float32 one. `tf32`: float32 operands may be cut to tf32. `half-accumulate`: 16-bit sums are allowed too.
Operands that are 16 bits wide in the task's own inputs may be multiplied as such under every contract. So may those of
8 bits, whose sums may err as cuBLAS' do in `torch._scaled_mm`: Hopper keeps 13 bits behind the point of a partial sum.
"""

_DOT = re.compile(r"tt\.dot(?:_scaled)?\b")
_DOT_PRECISION = re.compile(r"inputPrecision\s*=\s*(\w+)")
_DOT_TYPES = re.compile(r":\s*tensor<[^>]*x(\w+)>\s*\*\s*tensor<[^>]*x(\w+)>\s*->\s*tensor<[^>]*x(\w+)>")
_MMA = re.compile(r"\b(?:wgmma\.mma_async|mma)\.[\w.:]+|\btcgen05\.mma[\w.:]*")
_MMA_TYPES = re.compile(r"\.(f16|f32|f64|s32|bf16|tf32)\.(f16|bf16|tf32|e4m3|e5m2|f64)")
_REDUCE = re.compile(r"\"tt\.(reduce|scan)\"|tt\.(?:reduce|scan)\b")
_HALF_SUM = re.compile(r"(arith\.addf|arith\.mulf)\s.*:\s*(f16|bf16)\b")
_HALF_TENSOR_SUM = re.compile(r"(%\w+)\s*=\s*arith\.addf\s+(%[\w#]+),\s*(%[\w#]+).*:\s*tensor<[^>]*x(f16|bf16)[^>]*>")
_ITERATION = re.compile(r"iter_args\(([^)]*)\)")
_OPERATION = re.compile(r"(?:(%\w+)(?::\d+)? = )?\"?([a-z_]+\.[\w.]+)\"?(.*)")
_SPREADS = ("tt.splat", "tt.expand_dims", "tt.broadcast")


def check(ttir: str = "", ptx: str = "", contract: str = "ieee") -> Verdict:
    """Accept, or reject-precision with the offending line. Either text may be empty."""
    if contract not in CONTRACTS:
        raise ValueError(f"a precision contract is one of {', '.join(CONTRACTS)}, not {contract!r}")
    for text, number, line, what in chain(_faults_in_ttir(ttir, contract), _faults_in_ptx(ptx, contract)):
        line = " ".join(line.split())[:160]
        reason = f"{what} under the contract {contract!r} ({text} line {number}: {line})"
        detail = {"text": text, "line": number, "source": line, "contract": contract}
        weaker = CONTRACTS[CONTRACTS.index(contract) + 1 :]
        detail["needs"] = next((c for c in weaker if check(ttir, ptx, c).accepted), "")
        return Verdict(Word.PRECISION, "precision", reason, detail=detail)
    return Verdict(Word.ACCEPT, "precision")


_Fault = tuple[str, int, str, str]
"""(`ttir` or `ptx`, line number, line, what is wrong)."""


def _allows(contract: str, needed: str) -> bool:
    return CONTRACTS.index(contract) >= CONTRACTS.index(needed)


def _faults_in_ttir(ttir: str, contract: str) -> Iterator[_Fault]:
    if not _allows(contract, "half-accumulate"):
        for number, line in _narrowed_sums(ttir.splitlines()):
            yield "ttir", number, line, "a float32 sum rounded to 16 bits, with which the elements are computed"
    carried: set[str] = set()
    reducing = 0
    for number, line in enumerate(ttir.splitlines(), 1):
        for loop in _ITERATION.findall(line):
            carried |= set(re.findall(r"(%[\w#]+)\s*=", loop))
        what = _dot_fault(line, contract)
        if what:
            yield "ttir", number, line, what
        if _REDUCE.search(line):
            reducing = number
        if _allows(contract, "half-accumulate"):
            continue
        # The body of a reduction is scalar arithmetic on its block arguments, within a few lines of its head.
        if reducing and number - reducing <= 4 and _HALF_SUM.search(line):
            yield "ttir", number, line, "a reduction in 16 bits"
        added = _HALF_TENSOR_SUM.search(line)
        if added and carried & {added.group(2), added.group(3)}:
            yield "ttir", number, line, "a 16-bit accumulator carried through a loop"


def _narrowed_sums(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Where a float32 sum, or its mean or root, is broadcast to many elements after it was rounded to 16 bits.

    A 16-bit output hides this from the judge: it moves no element of normal size by more than the output's rounding.
    """
    sums: dict[str, str] = {}  # the types of sums and of what is computed of them, by name
    narrow: set[str] = set()
    spread: set[str] = set()
    blocks: list[str] = []  # the names of the results of the operations that are open
    added = False
    for number, line in enumerate((text.partition(" loc(")[0].strip() for text in lines), 1):
        if line.startswith("}") and blocks:
            name = blocks.pop()
            if line.startswith("})") and added:
                sums[name] = line.rpartition("-> ")[2]
            if line.endswith("{"):  # another region of the same operation
                blocks.append(name)
            continue
        found = _OPERATION.match(line)
        if found is None:
            continue
        name, op, rest = found.group(1) or "", found.group(2), found.group(3)
        values, _, kind = rest.rpartition(" : ")
        operands = re.findall(r"%\w+(?:#\d+)?", values)
        if line.endswith("{"):
            blocks.append(name)
            added = False
        elif op == "arith.addf" and blocks and kind == "f32":
            added = True
        if op == "scf.yield":
            for at, (value, each) in enumerate(zip(operands, kind.split(", "))):
                if value in sums and blocks:
                    sums[blocks[-1] if len(operands) == 1 else f"{blocks[-1]}#{at}"] = each
        elif op == "arith.truncf" and kind.endswith(("16", "16>")) and not sums.keys().isdisjoint(operands):
            narrow.add(name)
        elif op in _SPREADS and not (narrow | spread).isdisjoint(operands):
            spread.add(name)
        elif op.startswith(("arith.", "math.")):
            if not spread.isdisjoint(operands):
                yield number, line
            if not narrow.isdisjoint(operands):
                narrow.add(name)
            elif any(sums.get(value) == kind for value in operands):
                sums[name] = kind


def _dot_fault(line: str, contract: str) -> str:
    types = _DOT_TYPES.search(line) if _DOT.search(line) else None
    if types is None:
        return ""
    left, right, accumulator = types.groups()
    if accumulator in ("f16", "bf16") and not _allows(contract, "half-accumulate"):
        return f"a {accumulator} accumulator"
    option = _DOT_PRECISION.search(line)
    precision = option.group(1).lower() if option else "ieee"
    if "f32" in (left, right) and precision != "ieee":
        needed = precision if precision in ("tf32", "tf32x3") else "tf32"
        if not _allows(contract, needed):
            return f"a matrix product in {precision}"
    return ""


def _faults_in_ptx(ptx: str, contract: str) -> Iterator[_Fault]:
    for number, line in enumerate(ptx.splitlines(), 1):
        instruction = _MMA.search(line)
        if instruction is None:
            continue
        # `.kind::tf32` is Blackwell's spelling; there the accumulator's type is in a descriptor and not read here.
        text = instruction.group()
        types = _MMA_TYPES.search(text)
        if (".tf32" in text or "kind::tf32" in text) and not _allows(contract, "tf32x3"):
            yield "ptx", number, line, "a tf32 matrix instruction"
        elif types and types.group(1) == "f16" and not _allows(contract, "half-accumulate"):
            yield "ptx", number, line, "a matrix instruction with a 16-bit accumulator"
