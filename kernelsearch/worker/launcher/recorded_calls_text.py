"""Writes the calls of a launcher as a task file's text: sizes by name, inputs of their kinds, shapes, what is changed.

Numbers that are equal in all calls are one size; multiples, counts of blocks and a size plus one follow it; what never
varies is a constant. Integers keep what they mean in a call: offsets, places below a size, places that all differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from kernelsearch.worker.launcher.recorded_tensor import write_tensor

Vector = tuple[Any, ...]
"""A number in each of the calls."""
Takes = Callable[[str, torch.Tensor], bool]
Draw = Callable[[Sequence[str]], str]
"""Writes values of a shape."""
MOST_TESTED, TESTED, TIMED = 2**17, 3, 4
"""Elements of the inputs of a test shape; most test shapes and most timed ones."""
BLOCKS = (128, 64, 32, 16, 256, 512)
"""Sizes of blocks that a size may count."""


def write_task(
    name: str, calls: Sequence[Mapping[str, Any]], changed: Sequence[str], takes: Takes
) -> tuple[str, list[Mapping[str, Any]]]:
    """(The text that makes a file with a launcher a task, the parameters of each call).

    changed are the arguments that any call changed. takes says whether the launcher takes the smallest call with
    another tensor for a name, without a fault or a race.
    """
    writer = _Writer(calls, takes)
    made = "".join(f"        {writer.write(label)},\n" for label in calls[0])
    shapes = [{n: vector[i] for n, vector in writer.params.items()} for i in range(len(calls))]
    sizes = {_spell(p): (count_elements(call), p) for p, call in zip(shapes, calls, strict=True)}
    once = sorted(sizes.values(), key=lambda pair: pair[0])
    tests = [p for n, p in once[:-1] if n <= MOST_TESTED][:TESTED] or [once[0][1]]
    timed = [p for _, p in once if p not in tests][-TIMED:] or [once[-1][1]]
    lists = ["".join(f"    dict({_spell(p)}),\n" for p in part) for part in (timed, tests)]
    domain = ", ".join(f'"{n}": "{limit}"' for n, limit in writer.domain.items())
    domain = f"DOMAIN = {{{domain}}}\n" if domain else ""
    mutates = "".join(f'"{n}", ' for n in changed).rstrip()
    return (
        "import torch\n\nimport kernelsearch\n\n"
        f"reference = kernelsearch.kernel_as_reference({name})\n"
        f'LAUNCHER = "{name}"\n'
        f"MUTATES = ({mutates})\n{domain}\n\n"
        f"def get_inputs({_spell(timed[-1])}):\n    return [\n{made}    ]\n\n\n"
        f"SHAPES = [\n{lists[0]}]\nTEST_SHAPES = [\n{lists[1]}]\n"
    ), shapes


def count_elements(call: Mapping[str, Any]) -> int:
    """The elements of all tensors of a call."""
    return sum(v.numel() for v in call.values() if torch.is_tensor(v))


def _spell(shape: Mapping[str, Any]) -> str:
    return ", ".join(f"{n}={v if isinstance(v, torch.dtype) else repr(v)}" for n, v in shape.items())


class _Writer:
    """numbers has, by its values in all calls, each size as an expression over the parameters, or a literal."""

    def __init__(self, calls: Sequence[Mapping[str, Any]], takes: Takes) -> None:
        self.calls, self.takes = calls, takes
        self.domain, self.params, self.numbers = dict[str, str](), dict[str, Vector](), dict[Vector, str]()
        for vector, name in sorted(self._list_sizes(), key=lambda pair: sum(pair[0])):
            if vector not in self.numbers:
                text = str(vector[0]) if len({*vector}) == 1 else self._derive(vector)
                self.params |= {} if text else {name: vector}
                self.numbers[vector] = text or name
        for name, vector in [*self.params.items()]:  # what counts the blocks of another, where no third follows it
            alone = sum(name in text.split() for text in self.numbers.values()) == 1 and max(vector) > 1
            for other, own in [*self.params.items()] if alone else []:
                step = next((s for s in BLOCKS if vector == tuple(-(-n // s) for n in own)), 0)
                if step and name in self.params:
                    self.numbers[vector] = f"-(-{other} // {step})"
                    del self.params[name]

    def _list_sizes(self) -> Iterator[tuple[Vector, str]]:
        for label, value in self.calls[0].items():  # a number that is passed has the best name
            if type(value) is int:
                yield self._gather(lambda call, label=label: call[label]), label
        for label, value in self.calls[0].items():
            for axis in range(value.dim()) if torch.is_tensor(value) else ():
                yield self._gather(lambda call, label=label, axis=axis: call[label].shape[axis]), f"{label}_{axis}"

    def _gather(self, take: Callable[[Mapping[str, Any]], Any]) -> Vector:
        return tuple(map(take, self.calls))

    def _derive(self, vector: Vector) -> str:
        """A size that follows another in all calls, else ""."""
        for name, own in self.params.items():
            if vector == tuple(n + 1 for n in own):
                return f"({name} + 1)"
            factor = vector[0] // own[0] if own[0] > 0 else 0
            if factor > 1 and vector == tuple(factor * n for n in own):
                return f"{factor} * {name}"
        return ""

    def write(self, label: str) -> str:
        """An input as an expression."""
        values = [call[label] for call in self.calls]
        if torch.is_tensor(values[0]):
            kinds = tuple(v.dtype for v in values)
            dtype = str(kinds[0]) if len({*kinds}) == 1 else self._name(kinds, f"{label}_dtype")
            sizes = {(label, a): self.numbers[tuple(v.shape[a] for v in values)] for a in range(values[0].dim())}
            if kinds[0] == torch.bool:
                return write_tensor(label, values[-1], sizes, {})[0]
            draw = self._draw_floats if values[0].is_floating_point() else self._draw_integers
            return f"{write_tensor(label, values[-1], sizes, {}, draw(label, values))[0]}.to({dtype})"
        vector = tuple(values)
        if type(values[0]) is int and vector in self.numbers:
            return self.numbers[vector]
        return repr(values[0]) if len({*map(repr, vector)}) == 1 else self._name(vector, label)

    def _name(self, vector: Vector, name: str) -> str:
        """The parameter that has these values, a new one where none has."""
        known = next((n for n, own in self.params.items() if own == vector), name)
        self.params[known] = vector
        return known

    def _draw_floats(self, label: str, values: list[torch.Tensor]) -> Draw:
        every = torch.cat([v.double().reshape(-1) for v in values])
        every = every[every.isfinite()] if bool(every.isfinite().any()) else torch.zeros(1, dtype=torch.float64)
        low, high, spread = float(every.min()), float(every.max()), float(every.std(correction=0))
        if low >= 0.0 and spread > 0.0:
            self.domain[label] = "unit" if high <= 1.0 else "positive" if low > 0.0 else "nonnegative"
            return _draw("rand", max(1.0, high))
        return _draw("randn", 1.0 if 0.4 < spread < 2.5 or not spread else spread)

    def _draw_integers(self, label: str, values: list[torch.Tensor]) -> Draw:
        flat = [v.reshape(-1).long() for v in values]
        if values[0].dim() == 1 and all(len(v) > 1 and bool((v.diff() >= 0).all()) and v[0] == 0 for v in flat):
            end = self.numbers.get(tuple(int(v[-1]) for v in flat))
            if all(torch.equal(v, torch.arange(len(v))) for v in flat):
                self.domain[label] = "fixed"
                return lambda shape: f"torch.arange({shape[0]})"
            if end:
                self.domain[label] = "fixed"
                inner = f"torch.randint(0, {end} + 1, ({{}} - 2,)).sort().values, torch.full((1,), {end})"
                return lambda shape: f"torch.cat([torch.zeros(1, dtype=torch.int64), {inner.format(shape[0])}])"
        rows, every = [v[v >= 0] for v in flat], torch.cat([*flat, torch.zeros(1, dtype=torch.int64)])
        highs, least = [int(v.max()) + 1 if len(v) else 1 for v in rows], min(int(v.min()) for v in flat if len(v))
        limit, is_place = self._find_limit(label, highs)
        if is_place and all(len(v) == len(v.unique()) for v in rows) and self._must_differ(label):
            self.domain[label] = "fixed"
            share = sum(map(len, rows)) / (len(every) - 1)
            pad = f"torch.where(torch.rand({{shape}}) < {share:.2g}, {{drawn}}, -1)" if share < 1 else "{drawn}"
            drawn = f"torch.randperm({limit})[:{{count}}].reshape({{shape}})"

            def draw(shape: Sequence[str]) -> str:
                count, size = " * ".join(shape), f"({', '.join(shape)},)"
                return pad.format(shape=size, drawn=drawn.format(count=count, shape=size))

            return draw
        info = torch.iinfo(values[0].dtype)
        if info.bits == 8 and (max(highs) - least) * 2 > info.max - info.min:
            least, limit = info.min, str(info.max + 1)
        low = least if least <= 0 else 0 if is_place else 1
        return lambda shape: f"torch.randint({low}, {limit}, ({', '.join(shape)}{',' * bool(shape)}))"

    def _must_differ(self, label: str) -> bool:
        """Whether equal numbers are places that are written twice."""
        smallest = min(self.calls, key=count_elements)[label]
        return smallest.numel() > 1 and not self.takes(label, torch.full_like(smallest, int(smallest.max())))

    def _find_limit(self, label: str, highs: list[int]) -> tuple[str, bool]:
        """(What a number stays below, whether that is a size: then it is a place)."""
        own = {self._gather(lambda call, a=a: call[label].shape[a]) for a in range(self.calls[0][label].dim())}
        limits = {v: t for v, t in self.numbers.items() if v not in own or len({*v}) == 1}
        for name, value in self.calls[0].items():
            if torch.is_tensor(value) and value.dim() > 1 and name != label:
                rows, cols = (self._gather(lambda call, n=name, a=a: call[n].shape[a]) for a in (0, 1))
                both = tuple(m * n for m, n in zip(rows, cols, strict=True))
                limits.setdefault(both, f"{self.numbers[rows]} * {self.numbers[cols]}")
        fitting = [(v, t, True) for v, t in limits.items()]
        fitting += [(tuple(n + 1 for n in v), f"{t} + 1", False) for v, t, _ in fitting]
        fitting = [f for f in fitting if all(n >= high for n, high in zip(f[0], highs, strict=True))]
        if not fitting:
            return str(max(highs)), False
        vector, text, is_place = min(fitting, key=lambda f: (sum(f[0]), not f[2]))
        near = any(2 * high >= n for n, high in zip(vector, highs, strict=True))
        return (text, is_place) if near else (f"min({max(highs)}, {text})", False)


def _draw(how: str, factor: float) -> Draw:
    size = "" if factor == 1.0 else f" * {factor:.2g}"
    before, after = ("(", ")") if size else ("", "")
    return lambda shape: f"{before}torch.{how}({', '.join(shape) or '()'}){size}{after}"
