"""Rules for the expressions of one kind under one scope: pointers, masks, integers and floats, by shape.

`value` gives whole expressions, `tight` those that may stand beside an operator. A level bounds the nesting: 0 is a
name or a literal, each further level may hold one call or one chain of operators around the level below. Every rule
gives exactly its kind: the shape is never left to broadcasting by chance, and only float32 meets arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kernelsearch.propose.grammar.infer import Scope
from kernelsearch.propose.grammar.kinds import BOOL, FLOAT, INT, Kind, Shape
from kernelsearch.propose.grammar.rules import Draft, Ref, Rules
from kernelsearch.propose.grammar.universe import Universe

LONG = "i64"

Store = dict[tuple, list[tuple[Ref | None, dict[Kind, tuple[str, ...]]]]]
"""Rules by what they are of, each with the atoms that it was made from."""
UNARY = ("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "abs", "sigmoid", "erf", "floor")
REDUCTIONS = ("sum", "max", "min")
LOAD_HINTS = (")", ', cache_modifier=".cg")', ', eviction_policy="evict_first")')
"""One hint or none: ptxas refuses an access that has both."""
STORE_HINTS = tuple(hints.replace(".cg", ".cs") for hints in LOAD_HINTS)


class Expressions:
    """The expression rules under one scope.

    addresses are the names that an address may begin with: those that the parent loads from, unless others are given.
    store is shared by all scopes of one grammar: a rule that was made for another scope is taken over when every set of
    atoms that it was made of is the same here.
    """

    def __init__(
        self, rules: Rules, scope: Scope, universe: Universe, store: Store, addresses: frozenset[str] | None = None
    ) -> None:
        self.rules, self.scope, self.universe, self.store = rules, scope, universe, store
        self.addresses = universe.loaded if addresses is None else addresses
        self.named: dict[Kind, list[str]] = {}
        literals, numbers = [], []
        for name, kind in scope.items():
            if not kind.const or kind.dtype == INT:
                self.named.setdefault(replace(kind, const=False) if kind.const else kind, []).append(name)
            elif kind.dtype == FLOAT:
                literals.append(name)
            if kind.const:
                numbers.append(name)
        pointers = [(n, k.dtype) for n, k in scope.items() if k.pointer and n in universe.parameters]
        self.elements = {dtype: name for name, dtype in reversed(pointers)}
        self.dtypes = tuple(dict.fromkeys(k.dtype for k in scope.values() if k.pointer))
        self.literals = (*universe.floats, *literals)
        self.counts = tuple(n for n, k in scope.items() if k == Kind(INT))
        self.dims = frozenset(d for d in universe.dims if universe.dims[d] <= scope.keys())
        self.shapes = [s for s in universe.shapes if all(d == "1" or d in self.dims for d in s)]
        self.static = (
            id(universe),
            self.addresses,
            tuple(self.elements.items()),
            self.dtypes,
            self.literals,
            self.dims,
            tuple(numbers),
            self.counts,
        )
        self.atoms: dict[Kind, tuple[str, ...]] = {}
        self.used: list[set[Kind]] = [set()]
        self.memo: dict[tuple[str, Kind, int], tuple[Ref | None, set[Kind]]] = {}

    # ------------------------------------------------------------ the forms

    def value(self, kind: Kind, level: int) -> Ref | None:
        """Expressions for an argument or an assignment, where no operator stands beside them."""
        return self._rule("value", kind, level)

    def tight(self, kind: Kind, level: int) -> Ref | None:
        """Expressions that bind closer than any operator: names, calls, parentheses."""
        return self._rule("tight", kind, level)

    def atom(self, kind: Kind) -> Ref | None:
        return self._rule("atom", kind, 0)

    def _rule(self, form: str, kind: Kind, level: int) -> Ref | None:
        key = form, kind, level
        if key not in self.memo:
            self.memo[key] = self._known(key) or self._made(key)
        ref, used = self.memo[key]
        self.used[-1] |= used
        return ref

    def _known(self, key: tuple[str, Kind, int]) -> tuple[Ref | None, set[Kind]] | None:
        """The rule that another scope made from the same atoms."""
        for ref, atoms in reversed(self.store.get((self.static, *key), ())):
            if all(self._atoms(kind) == texts for kind, texts in atoms.items()):
                return ref, set(atoms)
        return None

    def _made(self, key: tuple[str, Kind, int]) -> tuple[Ref | None, set[Kind]]:
        self.used.append(set())
        ref = self.rules.add(self._drafts(*key))
        used = self.used.pop()
        self.store.setdefault((self.static, *key), []).append((ref, {kind: self._atoms(kind) for kind in used}))
        return ref, used

    def _drafts(self, form: str, kind: Kind, level: int) -> Iterable[Draft]:
        if form == "atom":
            self.used[-1].add(kind)
            return [(text,) for text in self._atoms(kind)]
        drafts: list[Draft] = [(self.atom(kind),)]
        if level > 0:
            drafts += self._calls(kind, level - 1)
            chains = self._chains(kind, level - 1)
            if form == "value":
                drafts += chains
            elif chains:
                drafts.append(("(", self.rules.add(chains), ")"))
        return drafts

    # ------------------------------------------------------------ names and literals

    def _atoms(self, kind: Kind) -> tuple[str, ...]:
        if kind not in self.atoms:
            self.atoms[kind] = tuple(self._texts(kind))
        return self.atoms[kind]

    def _texts(self, kind: Kind) -> list[str]:
        found = list(self.named.get(kind, ()))
        if kind.pointer:
            return [n for n in found if n in self.addresses]
        if len(kind.shape) == 2 and "1" in kind.shape:
            axis = kind.shape.index("1")
            index = "[None, :]" if axis == 0 else "[:, None]"
            found += [n + index for n in self.named.get(kind.shaped((kind.shape[1 - axis],)), ())]
        if kind == Kind(INT):
            found += [str(i) for i in self.universe.integers]
        if kind.dtype == INT and len(kind.shape) == 1 and kind.shape[0] in self.dims:
            found.append(f"tl.arange(0, {kind.shape[0]})")
        return found

    def floats(self) -> Ref | None:
        """Float literals and names that are as good as literals."""
        return self.rules.one_of(self.literals)

    def sizes(self) -> Ref | None:
        """Integers that are surely positive: constexprs and literals."""
        names = [n for n in self.universe.positive if n in self.scope]
        return self.rules.one_of([*names, *(str(i) for i in self.universe.integers if i > 0)])

    # ------------------------------------------------------------ calls

    def _calls(self, kind: Kind, level: int) -> list[Draft]:
        if kind.pointer or kind.const:
            return []
        if kind.is_bool:
            return []
        drafts = self._loads(kind, level) if kind.dtype in self.dtypes else []
        if len(kind.shape) == 2 and "1" in kind.shape and (kind.dtype in (INT, FLOAT)):
            axis = kind.shape.index("1")
            drafts.append(
                (self.tight(kind.shaped((kind.shape[1 - axis],)), level), "[None, :]" if axis == 0 else "[:, None]")
            )
        if kind.dtype == FLOAT:
            return drafts + self._float_calls(kind, level)
        if kind.dtype == INT:
            return drafts + self._int_calls(kind, level)
        if kind.is_float:
            drafts += [
                (self.tight(Kind(FLOAT, kind.shape), level), f".to({self.elements[dtype]}.dtype.element_ty)")
                for dtype in (kind.dtype,)
                if dtype in self.elements
            ]
        elif kind.dtype == LONG:
            wide = [f"tl.program_id({axis}).to(tl.int64)" for axis in self.universe.axes] if kind.scalar else []
            drafts += [(text,) for text in wide]
            if not kind.scalar:
                drafts.append((self.tight(Kind(INT, kind.shape), level), ".to(tl.int64)"))
        return drafts

    def _loads(self, kind: Kind, level: int) -> list[Draft]:
        pointer = self.value(replace(kind, pointer=True), level)
        return [("tl.load(", pointer, tail) for tail in (self.load_tail(kind, level),)]

    def load_tail(self, kind: Kind, level: int) -> Ref | None:
        """What follows the pointer of a load: mask, other and hints."""
        mask = self.value(Kind(BOOL, kind.shape), min(level, 1))
        hints = self.rules.one_of(LOAD_HINTS)
        other = self.rules.one_of(("0.0", 'float("-inf")') if kind.is_float else ("0",))
        masked: list[Draft] = [(", mask=", mask, ", other=", other, hints)]
        if kind.scalar or not self.universe.masked:
            masked += [(hints,), (", mask=", mask, hints)]
        return self.rules.add(masked)

    def _float_calls(self, kind: Kind, level: int) -> list[Draft]:
        whole, mask = self.value(kind, level), self.value(Kind(BOOL, kind.shape), level)
        function = self.rules.one_of(f"tl.{name}(" for name in UNARY)
        either = self.rules.add([(self.value(kind, level),), (self.floats(),)])
        drafts: list[Draft] = [
            (function, whole, ")"),
            (self.rules.one_of(("tl.maximum(", "tl.minimum(")), whole, ", ", either, ")"),
        ]
        if not kind.scalar:
            drafts.append(("tl.where(", mask, ", ", whole, ", ", either, ")"))
            drafts.append((self.tight(Kind(INT, kind.shape), level), ".to(tl.float32)"))
            if all(d in self.dims for d in kind.shape):
                dims = ", ".join(kind.shape)
                drafts.append((f"tl.full([{dims}], ", self.floats(), ", dtype=tl.float32)"))
        for dtype in self.dtypes:
            if dtype != FLOAT and Kind(dtype).is_float:
                drafts += [(*load, ".to(tl.float32)") for load in self._loads(Kind(dtype, kind.shape), level)]
                drafts.append((self.tight(Kind(dtype, kind.shape), level), ".to(tl.float32)"))
        drafts += self._reductions(kind, level)
        drafts += self._dots(kind, level)
        return drafts

    def _reductions(self, kind: Kind, level: int) -> list[Draft]:
        function = self.rules.one_of(f"tl.{name}(" for name in REDUCTIONS)
        drafts: list[Draft] = []
        for shape in self.shapes:
            for axis in range(len(shape)):
                if "1" not in shape and shape[:axis] + shape[axis + 1 :] == kind.shape:
                    drafts.append((function, self.value(kind.shaped(shape), level), f", axis={axis})"))
        return drafts

    def _dots(self, kind: Kind, level: int) -> list[Draft]:
        drafts: list[Draft] = []
        for dot in self.universe.dots:
            if (dot.left[0], dot.right[1]) == kind.shape:
                left, right = (self.tight(Kind(dot.dtype, s), min(level, 1)) for s in (dot.left, dot.right))
                end = self.rules.one_of(f', input_precision="{p}")' for p in self.universe.precisions)
                drafts += [("tl.dot(", left, ", ", right, end)]
                drafts += [("tl.dot(", left, ", ", right, ", ", self.tight(kind, level), end)]
        return drafts

    def _int_calls(self, kind: Kind, level: int) -> list[Draft]:
        if kind.scalar:
            inner = self.value(kind, level)
            ids: list[Draft] = [(f"tl.program_id({axis})",) for axis in self.universe.axes]
            return [*ids, ("tl.cdiv(", inner, ", ", self.sizes(), ")")]
        mask = self.value(Kind(BOOL, kind.shape), level)
        inner = self.value(kind, level)
        drafts: list[Draft] = [
            ("tl.where(", mask, ", ", inner, ", ", self.rules.add([(inner,), (self.atom(Kind(INT)),)]), ")"),
            (self.rules.one_of(("tl.minimum(", "tl.maximum(")), inner, ", ", self.atom(Kind(INT)), ")"),
        ]
        if len(kind.shape) == 1:  # they want one number for each dimension
            drafts.append(
                (self.rules.one_of(("tl.multiple_of(", "tl.max_contiguous(")), inner, ", ", self.sizes(), ")")
            )
        return drafts

    # ------------------------------------------------------------ chains of operators

    def _chains(self, kind: Kind, level: int) -> list[Draft]:
        if kind.const:
            return []
        if kind.pointer:
            return self._addresses(kind, level)
        if kind.is_bool:
            return self._masks(kind, level)
        if kind.dtype == FLOAT:
            return self._float_chains(kind, level)
        if kind.dtype == INT:
            return self._int_chains(kind, level)
        if kind == Kind(LONG):
            return [(self.tight(kind, level), self.rules.one_of((" * ", " + ")), self.atom(Kind(INT)))]
        return []

    def _float_chains(self, kind: Kind, level: int) -> list[Draft]:
        whole, loose = self.tight(kind, level), self.loose(kind, level)
        operator = self.rules.one_of((" + ", " - ", " * ", " / "))
        return [
            (whole, operator, loose),
            (loose, operator, whole),
            (whole, operator, loose, operator, self.loose(kind, 0)),
            ("-", whole),
        ]

    def loose(self, kind: Kind, level: int) -> Ref | None:
        """What may stand on the other side of an operator: the kind itself and all that broadcasts to it."""
        drafts: list[Draft] = [(self.tight(kind, level),), (self.floats(),)]
        if kind.shape:
            drafts += [(self.tight(kind.shaped(s), level),) for s in _below(kind.shape) if s in self.shapes]
            drafts.append((self.tight(Kind(FLOAT), level),))
        drafts.append((self.atom(Kind(INT)),))
        if level > 0:
            drafts.append(("(", self.floats(), " / ", self.rules.one_of(self.counts), ")"))
        return self.rules.add(drafts)

    def _int_chains(self, kind: Kind, level: int) -> list[Draft]:
        scalar, sizes = self.atom(Kind(INT)), self.sizes()
        plus = self.rules.one_of((" + ", " - "))
        divided = self.rules.one_of((" // ", " % "))
        if kind.scalar:
            return [
                (self.tight(kind, level), plus, self.tight(kind, level)),
                (scalar, " * ", scalar),
                (scalar, " * ", scalar, plus, self.tight(kind, level)),
                (self.tight(kind, level), divided, sizes),
            ]
        whole = self.tight(kind, level)
        drafts: list[Draft] = [
            (whole, plus, self.rules.add([(whole,), (self.tight(Kind(INT), level),)])),
            (self.tight(Kind(INT), level), plus, whole),
            (whole, " * ", scalar),
            (whole, divided, sizes),
            (scalar, " * ", scalar, " + ", whole),
        ]
        if len(kind.shape) == 2 and "1" not in kind.shape:
            rows, columns = (self._strided(kind.shaped(s), level) for s in _below(kind.shape))
            drafts += [(rows, " + ", columns), (scalar, " + ", rows, " + ", columns)]
        return drafts

    def _strided(self, kind: Kind, level: int) -> Ref | None:
        inner = self.tight(kind, level)
        return self.rules.add([(inner,), (inner, " * ", self.atom(Kind(INT)))])

    def _addresses(self, kind: Kind, level: int) -> list[Draft]:
        base = self.atom(replace(kind, shape=()))
        if kind.scalar:
            return [(base, " + ", self.value(Kind(dtype), level)) for dtype in (INT, LONG)]
        drafts: list[Draft] = [(base, " + ", self.value(Kind(INT, kind.shape), level))]
        drafts.append((base, " + ", self.tight(Kind(INT), 0), " + ", self.value(Kind(INT, kind.shape), level)))
        drafts.append((base, " + ", self.atom(Kind(LONG, kind.shape))))
        drafts.append((self.atom(kind), " + ", self.tight(Kind(INT), level)))
        return drafts

    def _masks(self, kind: Kind, level: int) -> list[Draft]:
        compare = self.rules.one_of((" < ", " <= ", " > ", " >= ", " == ", " != "))
        order = self.rules.one_of((" < ", " <= ", " > ", " >= "))
        whole, scalar = self.tight(Kind(INT, kind.shape), level), self.tight(Kind(INT), level)
        drafts: list[Draft] = [(whole, compare, scalar)]
        if kind.shape:
            drafts.append((whole, compare, self.atom(Kind(INT, kind.shape))))
            real = self.tight(Kind(FLOAT, kind.shape), 0)
            drafts.append((real, order, self.rules.add([(self.floats(),), (self.atom(Kind(FLOAT)),)])))
            joined = self.rules.one_of((" & ", " | "))
            drafts.append((self.tight(kind, level), joined, self.tight(kind, level)))
            if len(kind.shape) == 2 and "1" not in kind.shape:
                rows, columns = (self.tight(kind.shaped(s), max(level, 1)) for s in _below(kind.shape))
                drafts.append((rows, joined, columns))
        return drafts


def _below(shape: Shape) -> tuple[Shape, ...]:
    """The shapes of one column and of one row of a 2-D block."""
    if len(shape) != 2 or "1" in shape:
        return ()
    return (shape[0], "1"), ("1", shape[1])
