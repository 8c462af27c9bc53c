"""A reference's numbers that are no tensors: a kernel gets them in float32, where `1 - 0.999` errs by 200 roundings."""

from __future__ import annotations

import inspect
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partialmethod
from random import Random
from types import CodeType, FunctionType
from typing import Any

LARGEST = 512
"""The largest number at which an edge is looked for: squares of twice it are whole in float32."""


@contextmanager
def shake_scalars(reference: Callable[..., Any], eps: float, seed: int) -> Iterator[None]:
    """Within the context each number that float32 rounds is Shaken by eps.

    Numbers are those in a function's text, its defaults, what it names in its module, and attributes of a model.
    """
    random = Random(seed)
    model, functions = _find_functions(reference)
    holders: list[tuple[dict[str, Any], list[str]]] = []
    if model is not None:
        holders += [(vars(part), list(vars(part))) for part in model().modules()]
    texts = [
        (f, f.__code__, f.__defaults__) for f in functions if _is_any_rounded((f.__code__.co_consts, f.__defaults__))
    ]
    holders += [(f.__globals__, _list_names(f.__code__)) for f in functions]
    holders += [(f.__kwdefaults__, list(f.__kwdefaults__)) for f in functions if f.__kwdefaults__]
    before = [(values, name, values[name]) for values, names in holders for name in names if name in values]
    changed = [place for place in before if is_rounded(place[2])]
    try:
        for values, name, number in changed:
            values[name] = shake_scalar(number, eps, random)
        for each, code, given in texts:
            each.__code__ = code.replace(co_consts=shake_scalar(code.co_consts, eps, random))
            each.__defaults__ = shake_scalar(given, eps, random)
        yield
    finally:
        for values, name, number in changed:
            values[name] = number
        for each, code, given in texts:
            each.__code__, each.__defaults__ = code, given


def list_numbers(reference: Callable[..., Any], inputs: Sequence[Any], kind: str = "multiples") -> list[float]:
    """The numbers of a reference's text, defaults, module and inputs that are multiples of 1/16, but 0, 1 and 2.

    Of kind `marks` those too, which a number may be compared with; of `tolerances` what is less than 1, which a
    difference may be compared with.
    """

    def is_wanted(value: float) -> bool:
        return 0 < abs(value) < 1 if kind == "tolerances" else abs(value) <= LARGEST and (16 * value) % 1 == 0

    found: set[float] = set()
    queue: list[Any] = [tuple(inputs)]
    for each in _find_functions(reference)[1]:
        queue += [each.__code__, each.__defaults__, tuple((each.__kwdefaults__ or {}).values())]
        queue += [each.__globals__.get(name) for name in _list_names(each.__code__)]
    while queue:
        value = queue.pop()
        if isinstance(value, (tuple, CodeType)):
            queue += value if isinstance(value, tuple) else value.co_consts
        elif type(value) in (int, float) and is_wanted(value):
            found.add(float(abs(value)))
    return sorted(found - {0.0, 1.0, 2.0} if kind == "multiples" else found)


class Shaken(float):
    """A number that errs by a relative eps of random sign whenever arithmetic reads it, each time by another one.

    A kernel may get 1 - beta and 1 - beta**step from two places, so that their errors do not cancel.
    """

    eps: float
    random: Random

    @classmethod
    def of(cls, value: float, eps: float, random: Random) -> Shaken:
        number = cls(value)
        number.eps, number.random = eps, random
        return number

    def compute(self, name: str, *others: Any) -> Any:
        """What float's own method of this name makes of the number with an error."""
        read = float(self) * (1.0 + self.random.choice((-self.eps, self.eps)))
        result = getattr(float, name)(read, *others)
        return Shaken.of(result, self.eps, self.random) if type(result) is float else result


for _name in ("add", "sub", "mul", "truediv", "pow"):
    for _method in (f"__{_name}__", f"__r{_name}__"):
        setattr(Shaken, _method, partialmethod(Shaken.compute, _method))


def shake_scalar(value: Any, eps: float, random: Random) -> Any:
    """A number that float32 rounds, also in a tuple, as one that errs by eps; all else as it is."""
    if type(value) is tuple:
        return tuple(shake_scalar(v, eps, random) for v in value)
    return Shaken.of(value, eps, random) if is_rounded(value) else value


def is_rounded(value: Any) -> bool:
    """True for a float that float32 does not hold."""
    try:
        return type(value) is float and math.isfinite(value) and struct.unpack("f", struct.pack("f", value))[0] != value
    except OverflowError:
        return True


def _is_any_rounded(value: Any) -> bool:
    return any(map(_is_any_rounded, value)) if type(value) is tuple else is_rounded(value)


def _find_functions(reference: Callable[..., Any]) -> tuple[Any, list[FunctionType]]:
    """What gives the model of a reference, None where it has none, and the functions of its text."""
    function = inspect.unwrap(reference)
    model = getattr(function, "model", None)
    return model, _list_functions(function if model is None else type(model()).forward)


@lru_cache(maxsize=8)
def _list_functions(function: Any) -> list[FunctionType]:
    """A function of the task's file with those that it names, and those that they name."""
    found: list[FunctionType] = []
    queue = [function]
    while queue:
        each = queue.pop()
        if isinstance(each, FunctionType) and each not in found:
            found.append(each)
            named = (each.__globals__.get(name) for name in _list_names(each.__code__))
            queue += [v for v in named if getattr(v, "__module__", None) == each.__module__]
    return found


def _list_names(code: CodeType) -> list[str]:
    """The names of globals in a function and in those inside it."""
    inner: Sequence[CodeType] = [c for c in code.co_consts if isinstance(c, CodeType)]
    return list(dict.fromkeys([*code.co_names, *(name for c in inner for name in _list_names(c))]))
