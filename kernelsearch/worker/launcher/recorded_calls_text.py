"""Writes the calls of a launcher as a task file's text: sizes by name, inputs of their kinds, shapes, what is changed.

Numbers that are equal in all calls are one size; multiples, counts of blocks and a size plus one follow it; what never
varies is a constant. Integers keep what they mean in a call: offsets, places below a size, places that all differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from kernelsearch.worker.launcher.recorded_tensor import Draw, write_tensor

Takes = Callable[[str, torch.Tensor], bool]
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
    made = "".join(f"        {writer.write(label, values)},\n" for label, values in writer.columns.items())
    shapes = [{n: vector[i] for n, vector in writer.params.items()} for i in range(len(calls))]
    sizes = {_spell(p): (count_elements(call), p) for p, call in zip(shapes, calls, strict=True)}
    once = sorted(sizes.values(), key=lambda pair: pair[0])
    tests = [p for n, p in once[:-1] if n <= MOST_TESTED][:TESTED] or [once[0][1]]
    timed = [p for _, p in once if p not in tests][-TIMED:] or [once[-1][1]]
    lists = ["".join(f"    dict({_spell(p)}),\n" for p in part) for part in (timed, tests)]
    domain = ", ".join(f'"{n}": "{limit}"' for n, limit in writer.domain.items())
    text = f"import torch\n\nimport kernelsearch\n\nreference = kernelsearch.kernel_as_reference({name})\n"
    text += f'LAUNCHER = "{name}"\nMUTATES = [{", ".join(f"{n!r}" for n in changed)}]\n'.replace("'", '"')
    text += f"DOMAIN = {{{domain}}}\n" if domain else ""
    text += f"\n\ndef get_inputs({_spell(timed[-1])}):\n    return [\n{made}    ]\n\n\n"
    return f"{text}SHAPES = [\n{lists[0]}]\nTEST_SHAPES = [\n{lists[1]}]\n", shapes


def count_elements(call: Mapping[str, Any]) -> int:
    """The elements of all tensors of a call."""
    return sum(v.numel() for v in call.values() if torch.is_tensor(v))


def _spell(shape: Mapping[str, Any]) -> str:
    return ", ".join(f"{n}={v if isinstance(v, torch.dtype) else repr(v)}" for n, v in shape.items())


class _Writer:
    """numbers has, by its values in all calls, each size as an expression over the parameters, or a literal."""

    def __init__(self, calls: Sequence[Mapping[str, Any]], takes: Takes) -> None:
        self.columns = {label: [call[label] for call in calls] for label in calls[0]}
        self.smallest, self.takes = min(calls, key=count_elements), takes
        self.domain, self.params, self.numbers = dict[str, str](), dict[str, Any](), dict[Any, str]()
        named = {n: tuple(values) for n, values in self.columns.items() if type(values[0]) is int}
        named |= {
            f"{n}_{a}": _take(v, a) for n, v in self.columns.items() if torch.is_tensor(v[0]) for a in range(v[0].dim())
        }
        for name, vector in sorted(named.items(), key=lambda item: sum(item[1])):
            if vector not in self.numbers:
                text = str(vector[0]) if len({*vector}) == 1 else self._derive(vector)
                self.params |= {} if text else {name: vector}
                self.numbers[vector] = text or name
        for name, vector in [*self.params.items()]:  # what counts the blocks of another, where no third follows it
            alone = sum(name in text.split() for text in self.numbers.values()) == 1 and max(vector) > 1
            counted = [
                (n, s) for n, own in self.params.items() for s in BLOCKS if vector == tuple(-(-m // s) for m in own)
            ]
            if alone and counted:
                self.numbers[vector] = f"-(-{counted[0][0]} // {counted[0][1]})"
                del self.params[name]

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
            if kinds[0] == torch.bool:
                return write_tensor(label, values[-1], sizes, {})[0]
            dtype = str(kinds[0]) if len({*kinds}) == 1 else self._name(kinds, f"{label}_dtype")
            draw = self._draw_floats if values[0].is_floating_point() else self._draw_integers
            return f"{write_tensor(label, values[-1], sizes, {}, draw(label, values))[0]}.to({dtype})"
        if type(values[0]) is int and tuple(values) in self.numbers:
            return self.numbers[tuple(values)]
        return repr(values[0]) if len({*map(repr, values)}) == 1 else self._name(tuple(values), label)

    def _name(self, vector: Any, name: str) -> str:
        """The parameter that has these values, a new one where none has."""
        known = next((n for n, own in self.params.items() if own == vector), name)
        self.params[known] = vector
        return known

    def _draw_floats(self, label: str, values: list[torch.Tensor]) -> Draw:
        every = torch.cat([v.double().reshape(-1) for v in values]).nan_to_num(0.0, 0.0, 0.0)
        low, high, spread = (float(v) for v in (every.min(), every.max(), every.std(correction=0)))
        how, factor = "randn", 1.0 if 0.4 < spread < 2.5 or not spread else spread
        if low >= 0.0 and spread > 0.0:
            self.domain[label] = "unit" if high <= 1.0 else "positive" if low > 0.0 else "nonnegative"
            how, factor = "rand", max(1.0, high)
        text = f"torch.{how}({{}})" if factor == 1.0 else f"(torch.{how}({{}}) * {factor:.2g})"
        return lambda shape: text.format(", ".join(shape) or "()")

    def _draw_integers(self, label: str, values: list[torch.Tensor]) -> Draw:
        flat, text = [v.reshape(-1).long() for v in values], ""
        rows = [v[v >= 0] for v in flat]
        highs, least = [int(v.max()) + 1 if len(v) else 1 for v in rows], min(int(v.min()) for v in flat if len(v))
        (limit, is_place), end = self._find_limit(label, highs), self.numbers.get(tuple(n - 1 for n in highs))
        rises = all(v.dim() == 1 and len(v) > 1 and v[0] == 0 and bool((v.diff() >= 0).all()) for v in values)
        if rises and all(torch.equal(v, torch.arange(len(v))) for v in flat):
            text = "torch.arange({count})"
        elif rises and end:
            inner = f"torch.randint(0, {end} + 1, ({{count}} - 2,)).sort().values"
            text = f"torch.cat([torch.zeros(1, dtype=torch.int64), {inner}, torch.full((1,), {end})])"
        elif is_place and all(len(v) == len(v.unique()) for v in rows) and self._must_differ(label):
            text = f"torch.randperm({limit})[:{{count}}].reshape({{shape}})"
            share = sum(map(len, rows)) / sum(map(len, flat))
            text = f"torch.where(torch.rand({{shape}}) < {share:.2g}, {text}, -1)" if least < 0 else text
        self.domain |= {label: "fixed"} if text else {}
        low = least if least <= 0 else 0 if is_place else 1
        text = text or f"torch.randint({low}, {limit}, {{shape}})"
        return lambda shape: text.format(count=" * ".join(shape), shape=f"({', '.join(shape)}{',' * bool(shape)})")

    def _must_differ(self, label: str) -> bool:
        """Whether equal numbers are places that are written twice."""
        own = self.smallest[label]
        return own.numel() > 1 and not self.takes(label, torch.full_like(own, int(own.max())))

    def _find_limit(self, label: str, highs: list[int]) -> tuple[str, bool]:
        """(What a number stays below, whether that is a size: then it is a place)."""
        own = {_take(self.columns[label], a) for a in range(self.smallest[label].dim())}
        limits = {v: t for v, t in self.numbers.items() if v not in own or len({*v}) == 1}
        for name, column in self.columns.items():
            if torch.is_tensor(column[0]) and column[0].dim() > 1 and name != label:
                both = tuple(v.shape[0] * v.shape[1] for v in column)
                limits.setdefault(both, " * ".join(self.numbers[_take(column, a)] for a in (0, 1)))
        fitting = [(v, t, True) for v, t in limits.items()]
        fitting += [(tuple(n + 1 for n in v), f"{t} + 1", False) for v, t, _ in fitting]
        fitting = [f for f in fitting if all(n >= high for n, high in zip(f[0], highs, strict=True))]
        if not fitting:
            return str(max(highs)), False
        vector, text, is_place = min(fitting, key=lambda f: (sum(f[0]), not f[2]))
        near = any(2 * high >= n for n, high in zip(vector, highs, strict=True))
        return (text, is_place) if near else (f"min({max(highs)}, {text})", False)


def _take(values: list[torch.Tensor], axis: int) -> tuple[int, ...]:
    return tuple(v.shape[axis] for v in values)
