"""Writes the recorded calls of a launcher as a task: sizes that vary by name, inputs that are drawn or recorded."""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch

from kernelsearch.core.errors import TaskError
from kernelsearch.verify.precision import CONTRACTS
from kernelsearch.worker.launcher.recorded_call import spell
from kernelsearch.worker.launcher.recorded_tensor import write_tensor

MOST_TESTED, TESTED, TIMED, DRAWN = 2**17, 3, 4, 4
"""Elements of the inputs of a test shape; most test shapes and most timed ones; draws at each that must be taken."""
FEW, MOST_PACKED = 64, 2**18
"""Recorded integers that are written as such, and characters of all others."""
FORMS, WITH_SIZES = 6, 2
"""Test shapes of other forms (flags, dtypes, numbers that are no sizes, None), and test shapes more of other sizes."""
PACKED = (2, 4, 8, 16, 32, 64, 128, 256)
"""How many of one size there may be to one of another, rounded up, as bits of a word or rows of a page."""
UNPACK = """

def unpack_recorded(text, dtype, *shape):
    return torch.frombuffer(bytearray(zlib.decompress(base64.b64decode(text))), dtype=dtype).reshape(shape)
"""


def count_elements(call: Mapping[str, Any]) -> int:
    """The elements of all tensors of a call."""
    return sum(v.numel() for v in call.values() if torch.is_tensor(v))


def _spell(shape: Mapping[str, Any]) -> str:
    return ", ".join(f"{n}={spell(v)}" for n, v in shape.items())


class TaskText:
    """The text that makes a file with a launcher a task, with the parameters and the call of each shape.

    takes says whether the launcher takes one value everywhere in an input: a race where places are written twice.
    recorded names the integers that keep their values of each call. numbers has, by its values in all calls, each size
    as an expression over the parameters, or a literal. spread is the text of a function that
    gives the launcher its lists; empty where it takes none. written names tensors of which what a call finds in them
    decides nothing.
    """

    def __init__(
        self,
        name: str,
        calls: Sequence[Mapping[str, Any]],
        changed: Sequence[str],
        takes: Callable[[str], bool],
        contract: str,
        recorded: Collection[str],
        spread: str = "",
        written: Collection[str] = (),
    ) -> None:
        self.columns = {label: [call[label] for call in calls] for label in calls[0]}
        every = {n: tuple(v is None for v in values) for n, values in self.columns.items()}
        self.absent = absent = {n: gone for n, gone in every.items() if any(map(torch.is_tensor, self.columns[n]))}
        self.columns |= {n: self._complete(values) for n, values in self.columns.items() if any(absent.get(n, ()))}
        least = min(range(len(calls)), key=lambda i: count_elements(calls[i]))
        self.smallest = {label: values[least] for label, values in self.columns.items()}
        self.takes, self.recorded, self.written = takes, recorded, written
        self.domain, self.params, self.numbers = dict[str, str](), dict[str, Any](), dict[Any, str]()
        named = {n: tuple(values) for n, values in self.columns.items() if all(type(v) is int for v in values)}
        drawn = {n: v for n, v in self.columns.items() if torch.is_tensor(v[0]) and n not in recorded}
        named |= {f"{n}_{a}": _take(v, a) for n, v in drawn.items() for a in range(v[0].dim())}
        self._name_sizes(named)
        kinds = [tuple(str(self.columns[n][i].tolist()) for n in sorted(recorded)) for i in range(len(calls))]
        if len({*kinds}) > 1:
            self.params["call"] = tuple(str(kinds.index(kind)) for kind in kinds)
        made = {label: self.write(label, values) for label, values in self.columns.items() if label not in recorded}
        forms = dict[tuple[bool, ...], str]()
        for label in (n for n, gone in absent.items() if any(gone)):
            forms.setdefault(absent[label], f"has_{label}")
        self.params |= {has: tuple(not none for none in gone) for gone, has in forms.items()}
        shapes = [{n: vector[i] for n, vector in self.params.items()} for i in range(len(calls))]
        axes = [_take(v, a) for v in drawn.values() for a in range(v[0].dim())]
        tests, timed = self._choose_shapes(shapes, [*map(count_elements, calls)], axes)
        self.tests, self.timed = ([(shapes[i], i) for i in part] for part in (tests, timed))
        made |= {label: self._recall(label, {*tests, *timed}) for label in recorded}
        made |= {label: f"{made[label]} if {forms[gone]} else None" for label, gone in absent.items() if any(gone)}
        self.text = self._write_text(name, changed, contract, spread, [made[label] for label in self.columns])

    def _name_sizes(self, named: Mapping[str, tuple[int, ...]]) -> None:
        """Sets params and numbers, given the sizes and other integers of all calls by their names."""
        ordered, packed = sorted(named.items(), key=lambda item: sum(item[1])), dict[Any, Any]()
        for size, vector in ordered:
            wide = ((other, k) for _, other in ordered for k in PACKED if _is_packed(vector, other, k))
            if vector not in self.numbers and (found := next(wide, None)):
                packed[vector] = found
            elif vector not in self.numbers:
                text = str(vector[0]) if len({*vector}) == 1 else self._derive(vector)
                self.params |= {} if text else {size: vector}
                self.numbers[vector] = text or size
        for vector, (other, k) in reversed(packed.items()):
            self.numbers[vector] = f"-(-{self.numbers[other]} // {k})"

    def _choose_shapes(
        self, shapes: Sequence[Mapping[str, Any]], elements: Sequence[int], axes: Collection[Any]
    ) -> tuple[list[int], list[int]]:
        """The calls that become test shapes, and timed ones, given the elements of each and the axes' sizes in all.

        Tests are the smallest ones, then the smallest of each form, then some with sizes that no other has; the
        largest of the rest are timed. Sets left_out.
        """
        sizes = {_spell(shape): (n, i) for i, (shape, n) in enumerate(zip(shapes, elements, strict=True))}
        once = sorted(sizes.values(), key=lambda pair: pair[0])
        few = [i for n, i in once if n <= MOST_TESTED]
        others = {n: v for n, v in self.params.items() if v not in axes and n != "call"}
        by_form = [n for n, v in others.items() if type(v[0]) is not int or len({*v}) <= FORMS]
        forms = [repr([shape[n] for n in by_form]) for shape in shapes]
        tests = [i for i in few if i != once[-1][1]][:TESTED] or [once[0][1]]
        smallest = sorted({*{forms[i]: i for _, i in reversed(once)}.values()} - {*tests})
        tests += [*dict.fromkeys([*_cover(shapes, by_form, smallest, tests, FORMS), *smallest])][:FORMS]
        self.left_out = len({*forms} - {forms[i] for i in tests})
        timed = [i for _, i in once if i not in tests][-TIMED:] or [once[-1][1]]
        by_size = [n for n in self.params if n not in by_form]
        return tests + sorted(_cover(shapes, by_size, few, [*tests, *timed], WITH_SIZES)), timed

    def _write_text(self, name: str, changed: Sequence[str], contract: str, spread: str, inputs: Sequence[str]) -> str:
        lines = "".join(f"        {text},\n" for text in inputs)
        lists = ["".join(f"    dict({_spell(p)}),\n" for p, _ in part) for part in (self.timed, self.tests)]
        domain = ", ".join(f'"{n}": "{limit}"' for n, limit in self.domain.items())
        unpack = UNPACK * ("unpack_recorded(" in lines)
        text = "import base64\nimport zlib\n\n" * bool(unpack) + "import torch\n\nimport kernelsearch\n\n"
        if spread:
            name, text = spread[4 : spread.index("(")], f"{text}\n{spread}\n\n"
        text += f"reference = kernelsearch.kernel_as_reference({name})\n"
        text += f'LAUNCHER = "{name}"\nMUTATES = [{", ".join(f"{n!r}" for n in changed)}]\n'.replace("'", '"')
        text += f"DOMAIN = {{{domain}}}\n" if domain else ""
        text += f'PRECISION = "{contract}"  # what the kernel itself does\n' if contract != CONTRACTS[0] else ""
        text += f"\n\ndef get_inputs({_spell(self.timed[-1][0])}):\n    return [\n{lines}    ]\n{unpack}\n\n"
        return f"{text}SHAPES = [\n{lists[0]}]\nTEST_SHAPES = [\n{lists[1]}]\n"

    def _complete(self, values: list[Any]) -> list[torch.Tensor]:
        """A tensor's values in all calls: where it is None, of the sizes that its axes share with others elsewhere."""
        some, at = next((v, i) for i, v in enumerate(values) if v is not None)
        given = [i for i, v in enumerate(values) if v is not None]
        others = [v for v in self.columns.values() if v is not values and all(map(torch.is_tensor, v))]
        sizes = [[v.shape[a] for v in other] for other in others for a in range(other[0].dim())]
        sizes += [v for v in self.columns.values() if all(type(n) is int for n in v)]

        def find(axis: int) -> list[int]:
            own = {i: values[i].shape[axis] for i in given}
            same = (v for v in sizes if all(v[i] == own[i] for i in given))
            scaled = (v for v in sizes if v[at] and all(v[i] * own[at] == own[i] * v[at] for i in given))
            like = next(same, None) or next(scaled, None)
            return [n * own[at] // like[at] for n in like] if like and like[at] else [own[at]] * len(values)

        shapes = list(zip(*(find(axis) for axis in range(some.dim())), strict=True)) or [()] * len(values)
        kinds = next((o for o in others if all(o[i].dtype == values[i].dtype for i in given)), [some] * len(values))
        made = (_resize(some, shape).to(own.dtype) for shape, own in zip(shapes, kinds, strict=True))
        return [new if v is None else v for v, new in zip(values, made, strict=True)]

    def _recall(self, label: str, used: Collection[int]) -> str:
        """An input as it was in these calls, as an expression."""
        self.domain[label] = "fixed"
        keys = self.params.get("call", [""] * len(self.columns[label]))
        made = {keys[i]: self.columns[label][i] for i in sorted(used)}
        texts = {key: _pack(value) for key, value in made.items()}
        if sum(map(len, texts.values())) > MOST_PACKED:
            raise TaskError(f"{label} has values that cannot be drawn, and too many to be kept: record smaller calls")
        if len({*texts.values()}) == 1:
            return next(iter(texts.values()))
        return f"{{{', '.join(f'{key!r}: lambda: {text}' for key, text in texts.items())}}}[call]()".replace("'", '"')

    def _derive(self, vector: Any) -> str:
        """A size that follows another in all calls, else ""."""
        for name, own in self.params.items():
            factor = vector[0] // own[0] if own[0] > 0 else 0
            if vector == tuple(n + 1 for n in own):
                return f"({name} + 1)"
            if factor > 1 and vector == tuple(factor * n for n in own):
                return f"{factor} * {name}"
        return ""

    def write(self, label: str, values: list[Any]) -> str:
        """An input as an expression."""
        if torch.is_tensor(values[0]):
            kinds = tuple(v.dtype for v in values)
            sizes = {(label, a): self.numbers[_take(values, a)] for a in range(values[0].dim())}
            if kinds[0] == torch.bool or not values[-1].is_contiguous():
                return write_tensor(label, values[-1], sizes, {})[0]
            dtype = str(kinds[0]) if len({*kinds}) == 1 else self._name(kinds, f"{label}_dtype")
            if not any(v.numel() for v in values) or label in self.written:
                made = "zeros" if label in self.written else "empty"
                return f"torch.{made}({', '.join(sizes.values()) or '()'}, dtype={dtype})"
            draw = self._draw_floats if values[0].is_floating_point() else self._draw_integers
            return f"{draw(label, values, [*sizes.values()])}.to({dtype})"
        if type(values[0]) is int and tuple(values) in self.numbers:
            return self.numbers[tuple(values)]
        return spell(values[0]) if len({*map(repr, values)}) == 1 else self._name(tuple(values), label)

    def _name(self, vector: Any, name: str) -> str:
        """The parameter that has these values, a new one where none has."""
        known = next((n for n, own in self.params.items() if [*map(repr, own)] == [*map(repr, vector)]), name)
        self.params[known] = vector
        return known

    def _draw_floats(self, label: str, values: list[torch.Tensor], shape: list[str]) -> str:
        drawn = torch.cat([v.double().reshape(-1) for v in values])
        every = drawn.nan_to_num(0.0, 0.0, 0.0)
        low, high, spread = (float(v) for v in (every.min(), every.max(), every.std(correction=0)))
        how, factor = "randn", 1.0 if 0.4 < spread < 2.5 or not spread else spread
        if low >= 0.0 and spread > 0.0:
            self.domain[label] = "unit" if high <= 1.0 else "positive" if low > 0.0 else "nonnegative"
            how, factor = "rand", max(1.0, high)
        text = f"torch.{how}({{}})" if factor == 1.0 else f"(torch.{how}({{}}) * {factor:.2g})"
        text, share = text.format(sizes := ", ".join(shape) or "()"), float(drawn.isnan().double().mean())
        zeros = float((drawn == 0.0).double().mean())
        if spread and FEW * zeros >= 1.0:
            text = f"torch.where(torch.rand({sizes}) < {zeros:.2g}, 0.0, {text})"
        if share:
            self.domain[label] = "fixed"
            text = f"torch.where(torch.rand({sizes}) < {share:.2g}, torch.nan, {text})"
        return text

    def _draw_integers(self, label: str, values: list[torch.Tensor], shape: list[str]) -> str:
        values, text = [v for v, gone in zip(values, self.absent[label], strict=True) if not gone], ""
        flat = [v.reshape(-1).long() for v in values]
        rows, least = [v[v >= 0] for v in flat], min(int(v.min()) for v in flat if len(v))
        own = iter([int(v.max()) + 1 if len(v) else 1 for v in rows])
        highs = [1 if gone else next(own) for gone in self.absent[label]]
        (limit, is_place), end = self._find_limit(label, highs), self.numbers.get(tuple(n - 1 for n in highs))
        rises = all(v.dim() == 1 and len(v) > 1 and v[0] == 0 and bool((v.diff() >= 0).all()) for v in values)
        if rises and all(torch.equal(v, torch.arange(len(v))) for v in flat):
            text = "torch.arange({count})"
        elif rises and end:
            inner = f"torch.randint(0, {end} + 1, ({{count}} - 2,)).sort().values"
            text = f"torch.cat([torch.zeros(1, dtype=torch.int64), {inner}, torch.full((1,), {end})])"
        elif is_place and all(len(v) == len(v.unique()) for v in rows) and not self.takes(label):
            text = f"torch.randperm({limit})[:{{count}}].reshape({{shape}})"
            share = sum(map(len, rows)) / sum(map(len, flat))
            some = f"max(1, min({{count}} - 1, int({share:.3g} * {{count}})))"  # at least one of several is none
            none = f"torch.rand({{count}}).argsort().reshape({{shape}}) < {some}"
            text = f"torch.where({none}, {text}, -1)" if least < 0 else text
        self.domain |= {label: "fixed"} if text else {}
        below, rest = torch.cat([v[v < 0] for v in flat]), torch.cat(rows)
        if not text and len(below.unique()) == 1 and len(rest):  # as -1 or -100: no place, no label
            text = f"torch.randint({int(not is_place and int(rest.min()) > 0)}, {limit}, {{shape}})"
            share = len(below) / (len(below) + len(rest))
            text = f"torch.where(torch.rand({{shape}}) < {share:.3g}, {least}, {text})"
        text = text or f"torch.randint({least if least <= 0 else int(not is_place)}, {limit}, {{shape}})"
        return text.format(count=" * ".join(shape), shape=f"({', '.join(shape)}{',' * bool(shape)})")

    def _find_limit(self, label: str, highs: list[int]) -> tuple[str, bool]:
        """(What a number stays below, whether that is a size: then it is a place)."""
        own = {_take(self.columns[label], a) for a in range(self.smallest[label].dim())}
        limits = {v: t for v, t in self.numbers.items() if v not in own or len({*v}) == 1}
        for name, column in self.columns.items():
            if torch.is_tensor(column[0]) and column[0].dim() > 1 and name not in (label, *self.recorded):
                both = tuple(v.shape[0] * v.shape[1] for v in column)
                limits.setdefault(both, " * ".join(self.numbers[_take(column, a)] for a in (0, 1)))
        fitting = [(v, t, True) for v, t in limits.items()]
        fitting += [(tuple(n + 1 for n in v), f"{t} + 1", False) for v, t, _ in fitting]
        fitting = [f for f in fitting if all(n >= high for n, high in zip(f[0], highs, strict=True))]
        fitting = fitting or [((1,) * len(highs), str(max(highs)), False)]
        vector, text, is_place = min(fitting, key=lambda f: (sum(f[0]), not f[2]))
        near = any(2 * high >= n for n, high in zip(vector, highs, strict=True))
        return (text, is_place) if near else (f"min({max(highs)}, {text})", False)


def _cover(
    shapes: Sequence[Mapping[str, Any]], names: Sequence[str], calls: Sequence[int], known: Sequence[int], most: int
) -> list[int]:
    """At most so many of these calls, each of which has a value of these parameters that no known one has."""
    every = {i: {(n, repr(shapes[i][n])) for n in names} for i in (*calls, *known)}
    chosen, seen = list[int](), {value for i in known for value in every[i]}
    while len(chosen) < most:
        best = max(calls, key=lambda i: len(every[i] - seen), default=-1)
        if best < 0 or every[best] <= seen:
            break
        chosen.append(best)
        seen |= every[best]
    return chosen


def _is_packed(size: tuple[int, ...], other: tuple[int, ...], count: int) -> bool:
    """Whether a size that varies is another one divided by so many and rounded up in all calls."""
    if len({*size}) == 1 or min(size) < 1 or sum(other) <= sum(size) or not any(n % count for n in other):
        return False
    likely = count >= 8 or len({*other}) > 2
    return likely and all(n == -(-m // count) for n, m in zip(size, other, strict=True))


def _resize(tensor: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """A tensor's elements, again and again, in another shape."""
    if tuple(tensor.shape) == shape or not tensor.numel():
        return tensor
    count = math.prod(shape)
    return tensor.reshape(-1).repeat(1 + count // tensor.numel())[:count].reshape(shape)


def _take(values: list[torch.Tensor], axis: int) -> tuple[int, ...]:
    return tuple(v.shape[axis] for v in values)


def _pack(value: torch.Tensor) -> str:
    """A tensor of integers as an expression: few of them as they are, many packed."""
    if value.numel() <= FEW:
        return f"torch.tensor({value.tolist()}, dtype={value.dtype})"
    data = base64.b64encode(zlib.compress(value.contiguous().view(torch.uint8).numpy().tobytes(), 9)).decode()
    return f"unpack_recorded({', '.join(map(str, (repr(data), value.dtype, *value.shape)))})".replace("'", '"')
