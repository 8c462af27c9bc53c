"""Rules for the expressions of one kind under one scope: pointers, masks, integers and floats, by shape.

`value` gives whole expressions, `tight` those that may stand beside an operator. A level bounds the nesting: 0 is a
name or a literal, each further level may hold one call or one chain of operators around the level below. Every rule
gives exactly its kind: the shape is never left to broadcasting by chance, and only float32 meets arithmetic.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from kernelsearch.propose.analysis.kinds import BOOL, FLOAT, INT, Shape, ValueKind
from kernelsearch.propose.analysis.reader import Scope
from kernelsearch.propose.grammar.rules import Draft, Ref, Rules
from kernelsearch.propose.grammar.universe import Universe

UNARY = tuple("exp exp2 log log2 sqrt rsqrt abs sigmoid erf floor".split())
WORDS: Mapping[str, tuple[str, ...]] = {
    "unary": tuple(f"tl.{name}(" for name in UNARY),
    "extreme": ("tl.maximum(", "tl.minimum("),
    "arithmetic": (" + ", " - ", " * ", " / "),
    "plus": (" + ", " - "),
    "divided": (" // ", " % "),
    "compare": (" < ", " <= ", " > ", " >= ", " == ", " != "),
    "order": (" < ", " <= ", " > ", " >= "),
    "junction": (" & ", " | "),
}
CALLS: Mapping[str, tuple[str, ...]] = {
    "float": ("{unary}{value})", "{extreme}{value}, {either})"),
    "float block": ("tl.where({mask}, {value}, {either})", "{integer}.to(tl.float32)"),
    "half": ("{single}.to({element})",),
    "int scalar": ("tl.program_id({axis})", "tl.cdiv({value}, {size})"),
    "int block": ("tl.where({mask}, {value}, {step})", "{extreme}{value}, {scalar})"),
}
"""Calls that give a kind. Words in braces are holes: alternatives of `WORDS`, or rules that `_holes` names.

Texts are cut where Python's tokens end: llguidance lexes a call's name with its parenthesis as one."""
CHAINS: Mapping[str, tuple[str, ...]] = {
    "float": (
        "{tight}{arithmetic}{loose}",
        "{loose}{arithmetic}{tight}",
        "{tight}{arithmetic}{tight}{arithmetic}{plain}",
        "-{tight}",
    ),
    "int": ("{tight}{plus}{tight}", "{tight}{divided}{size}"),
    "int scalar": ("{scalar} * {scalar}", "{scalar} * {scalar}{plus}{tight}"),
    "int block": ("{tight}{plus}{step}", "{step}{plus}{tight}", "{tight} * {scalar}", "{scalar} * {scalar} + {tight}"),
    "int tile": ("{row_offsets} + {column_offsets}", "{scalar} + {row_offsets} + {column_offsets}"),
    "mask": ("{integer}{compare}{step}",),
    "mask block": ("{integer}{compare}{named}", "{real}{order}{number}", "{tight}{junction}{tight}"),
    "mask tile": ("{rows}{junction}{columns}",),
    "pointer": ("{base} + {offset}",),
    "pointer block": ("{base} + {step} + {offset}", "{atom} + {step}"),
}
"""Chains of operators that give a kind."""
LOAD_HINTS = (")", ', cache_modifier=".cg")', ', eviction_policy="evict_first")')
"""One hint or none: ptxas refuses an access that has both."""


class Expressions:
    """The expression rules under one scope; addresses are the names that an address may begin with."""

    def __init__(self, rules: Rules, scope: Scope, universe: Universe, addresses: frozenset[str]) -> None:
        self.rules, self.scope, self.universe, self.addresses = rules, scope, universe, addresses
        self.named: dict[ValueKind, list[str]] = {}
        for name, kind in scope.items():
            if not kind.const or kind.dtype == INT:
                self.named.setdefault(replace(kind, const=False), []).append(name)
        pointers = {n: k.dtype for n, k in scope.items() if k.pointer}
        self.dtypes = tuple(dict.fromkeys(pointers.values()))
        self.elements = {n: dtype for n, dtype in pointers.items() if n in universe.parameters}
        constants = [n for n, k in scope.items() if k.const and k.dtype == FLOAT]
        self.literals = (*universe.floats, *constants)
        self.dims = frozenset(d for d in universe.dims if universe.dims[d] <= scope.keys())
        self.shapes = [s for s in universe.shapes if all(d == "1" or d in self.dims for d in s)]
        self.memo: dict[tuple[str, ValueKind, int], Ref | None] = {}

    # ------------------------------------------------------------ the forms

    def value(self, kind: ValueKind, level: int) -> Ref | None:
        """Expressions for an argument or an assignment, where no operator stands beside them."""
        return self._rule("value", kind, level)

    def tight(self, kind: ValueKind, level: int) -> Ref | None:
        """Expressions that bind closer than any operator: names, calls, parentheses."""
        return self._rule("tight", kind, level)

    def atom(self, kind: ValueKind) -> Ref | None:
        """Names and literals."""
        return self._rule("atom", kind, 0)

    def floats(self) -> Ref | None:
        """Float literals and names that are as good as literals."""
        return self.rules.one_of(self.literals)

    def loose(self, kind: ValueKind, level: int) -> Ref | None:
        """Operands of float arithmetic with a kind: the kind itself and all that broadcasts to it."""
        shapes = dict.fromkeys([kind.shape, *(s for s in _below(kind.shape) if s in self.shapes), ()])
        wide = [(self.tight(kind.with_shape(s), level),) for s in shapes]
        return self.rules.add([*wide, (self.floats(),), (self.atom(ValueKind(INT)),)])

    def _rule(self, form: str, kind: ValueKind, level: int) -> Ref | None:
        key = form, kind, level
        if key not in self.memo:
            self.memo[key] = self.rules.add(self._drafts(*key))
        return self.memo[key]

    def _drafts(self, form: str, kind: ValueKind, level: int) -> Iterable[Draft]:
        if form == "atom":
            return [(text,) for text in self._atoms(kind)]
        drafts: list[Draft] = [(self.atom(kind),)]
        if level > 0 and not kind.const:
            chains = self._fill(CHAINS, kind, level - 1)
            drafts += [*self._fill(CALLS, kind, level - 1), *self._loads(kind, level - 1)]
            drafts += self._reductions(kind, level - 1)
            drafts += chains if form == "value" else [("(", self.rules.add(chains), ")")]
        return drafts

    def _atoms(self, kind: ValueKind) -> list[str]:
        """Names and literals of a kind."""
        texts = list(self.named.get(kind, ()))
        if kind.pointer:
            return [name for name in texts if name in self.addresses]
        if len(kind.shape) == 2 and "1" in kind.shape:
            axis = kind.shape.index("1")
            index = "[None, :]" if axis == 0 else "[:, None]"
            texts += [name + index for name in self.named.get(kind.with_shape((kind.shape[1 - axis],)), ())]
        if kind == ValueKind(INT):
            texts += [str(i) for i in self.universe.integers]
        if kind.dtype == INT and len(kind.shape) == 1 and kind.shape[0] in self.dims:
            texts.append(f"tl.arange(0, {kind.shape[0]})")
        return texts

    # ------------------------------------------------------------ the tables' holes

    def _fill(self, table: Mapping[str, tuple[str, ...]], kind: ValueKind, level: int) -> list[Draft]:
        """The table's forms for a kind, with their holes filled."""
        word = {FLOAT: "float", INT: "int", BOOL: "mask"}.get(kind.dtype, "half" if kind.is_float else "")
        word = "pointer" if kind.pointer else word
        sizes = ["block", "tile"][: 1 + bool(_below(kind.shape))] if kind.shape else ["scalar"]
        forms = [form for key in (word, *(f"{word} {size}" for size in sizes)) for form in table.get(key, ())]
        holes = self._holes(kind, level)
        return [tuple(holes[p]() if n % 2 else p for n, p in enumerate(re.split(r"\{(\w+)\}", f))) for f in forms]

    def _holes(self, kind: ValueKind, level: int) -> dict[str, Callable[[], Ref | None]]:
        """The rules that fill the holes of forms for a kind, by the holes' names."""
        one_of, add, shape = self.rules.one_of, self.rules.add, kind.shape
        integer, single, scalar = ValueKind(INT, shape), ValueKind(FLOAT, shape), ValueKind(INT)
        sizes = [n for n in self.universe.positive if n in self.scope]
        low, high = _below(shape) or (shape, shape)
        inner = max(level, 1) if kind.is_bool else level  # one comparison at least
        words = {name: lambda texts=texts: one_of(texts) for name, texts in WORDS.items()}
        return words | {
            "value": lambda: self.value(kind, level),
            "tight": lambda: self.tight(kind, level),
            "atom": lambda: self.atom(kind),
            "loose": lambda: self.loose(kind, level),
            "plain": lambda: self.loose(kind, 0),
            "either": lambda: add([(self.value(kind, level),), (self.floats(),)]),
            "number": lambda: add([(self.floats(),), (self.atom(ValueKind(FLOAT)),)]),
            "real": lambda: self.tight(single, 0),
            "single": lambda: self.tight(single, level),
            "element": lambda: one_of(f"{n}.dtype.element_ty" for n, d in self.elements.items() if d == kind.dtype),
            "integer": lambda: self.tight(integer, level),
            "named": lambda: self.atom(integer),
            "offset": lambda: self.value(integer, level),
            "scalar": lambda: self.atom(scalar),
            "step": lambda: self.tight(scalar, level),
            "size": lambda: one_of([*sizes, *(str(i) for i in self.universe.integers if i > 0)]),
            "axis": lambda: one_of(map(str, self.universe.axes)),
            "mask": lambda: self.value(ValueKind(BOOL, shape), level),
            "base": lambda: self.atom(replace(kind, shape=())),
            "rows": lambda: self.tight(kind.with_shape(low), inner),
            "columns": lambda: self.tight(kind.with_shape(high), inner),
            "row_offsets": lambda: self._add_strides(kind.with_shape(low), level),
            "column_offsets": lambda: self._add_strides(kind.with_shape(high), level),
        }

    def _add_strides(self, kind: ValueKind, level: int) -> Ref | None:
        inner = self.tight(kind, level)
        return self.rules.add([(inner,), (inner, " * ", self.atom(ValueKind(INT)))])

    # ------------------------------------------------------------ calls that depend on the parent

    def _loads(self, kind: ValueKind, level: int) -> list[Draft]:
        """Loads of a kind; float32 also from what is stored in half."""
        if kind.pointer or kind.is_bool:
            return []
        drafts: list[Draft] = []
        for dtype in self.dtypes:
            source = ValueKind(dtype, kind.shape, pointer=True)
            end = "" if dtype == kind.dtype else ".to(tl.float32)"
            if not end or (kind.dtype == FLOAT and ValueKind(dtype).is_float):
                drafts.append(
                    ("tl.load(", self.value(source, level), self._tail(ValueKind(dtype, kind.shape), level), end)
                )
        return drafts

    def _tail(self, kind: ValueKind, level: int) -> Ref | None:
        """The rest of a load behind its pointer: mask, other and one hint."""
        mask, hints = self.value(ValueKind(BOOL, kind.shape), min(level, 1)), self.rules.one_of(LOAD_HINTS)
        other = self.rules.one_of(("0.0", 'float("-inf")') if kind.is_float else ("0",))
        masked: list[Draft] = [(", mask=", mask, ", other=", other, hints)]
        if kind.is_scalar or not self.universe.masked:
            masked += [(hints,), (", mask=", mask, hints)]
        return self.rules.add(masked)

    def _reductions(self, kind: ValueKind, level: int) -> list[Draft]:
        if kind.pointer or kind.dtype != FLOAT:
            return []
        function = self.rules.one_of(("tl.sum(", "tl.max(", "tl.min("))
        return [
            (function, self.value(kind.with_shape(shape), level), f", axis={axis})")
            for shape in self.shapes
            for axis in range(len(shape))
            if "1" not in shape and shape[:axis] + shape[axis + 1 :] == kind.shape
        ]


def _below(shape: Shape) -> tuple[Shape, ...]:
    """The shapes of one column and of one row of a 2-D block; none for any other."""
    if len(shape) != 2 or "1" in shape:
        return ()
    return (shape[0], "1"), ("1", shape[1])
