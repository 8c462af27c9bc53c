"""The literals of a kernel file's launch spec, checked and in the one form that `Kernel` has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

from kernelsearch.core.errors import KernelSyntaxError
from kernelsearch.core.types import Value


def flatten_space(space: Any, where: str = "SPACE") -> dict[str, tuple[Value, ...]]:
    """`{"BLOCK": [1, 2]}` or the same by function name, as one flat dict with dotted names."""
    expect(isinstance(space, dict), where, "a dict of lists")
    flat: dict[str, tuple[Value, ...]] = {}
    for name, values in _flatten(space).items():
        valid = isinstance(values, (list, tuple)) and values and all(map(is_value, values))
        expect(valid, where, f"a non-empty list of numbers for {name!r}")
        flat[name] = tuple(values)
    return flat


def check_constraints(constraints: Any) -> tuple[str, ...]:
    """`["BM * BN <= 16384"]` as a tuple. Raises KernelSyntaxError for anything else."""
    valid = isinstance(constraints, (list, tuple)) and all(isinstance(text, str) for text in constraints)
    expect(valid, "CONSTRAINTS", 'a list of expressions, such as ["BM * BN <= 16384"]')
    return tuple(constraints)


def flatten_config(config: Any, where: str = "CONFIG") -> dict[str, Value]:
    """`{"BLOCK": 1}` or the same by function name, as one flat dict with dotted names."""
    expect(isinstance(config, dict), where, "a dict of values")
    flat = _flatten(config)
    for name, value in flat.items():
        expect(is_value(value), where, f"a number for {name!r}")
    return flat


def _flatten(given: Mapping[Any, Any]) -> dict[str, Any]:
    """A dict whose inner dicts are written out as dotted names."""
    flat: dict[str, Any] = {}
    for name, value in given.items():
        flat.update({f"{name}.{k}": v for k, v in value.items()} if isinstance(value, dict) else {str(name): value})
    return flat


def refuse_option(name: str, value: Any) -> str:
    """Why no launch can have this value of a launch option; empty if one can. None is the compiler's own choice."""
    if value is None or (type(value) is int and _OPTIONS[name](value)):
        return ""
    return f"{name} = {value!r} is not possible: {_OPTIONS_ARE}"


MAX_WARPS, MAX_THREADS = 32, 1024
_OPTIONS: Mapping[str, Callable[[int], bool]] = {
    "num_warps": lambda n: 0 < n <= MAX_WARPS and n & (n - 1) == 0,
    "num_ctas": lambda n: 0 < n <= 16 and n & (n - 1) == 0,
    "num_stages": lambda n: 0 <= n <= 32,
    "maxnreg": lambda n: 0 < n <= 256,
    "waves_per_eu": lambda n: 0 <= n <= 8,
    "matrix_instr_nonkdim": lambda n: n in (0, 4, 16, 32),
    "kpack": lambda n: n in (1, 2),
}
_OPTIONS_ARE = (
    f"num_warps is a power of two up to {MAX_WARPS}, num_ctas one up to 16, num_stages at most 32, maxnreg at most 256"
    ", waves_per_eu at most 8, matrix_instr_nonkdim 0, 4, 16 or 32, kpack 1 or 2"
)


def is_dict_of(value: Any, kinds: tuple[type, ...]) -> bool:
    """True for a dict from names to values of these types."""
    return isinstance(value, dict) and all(isinstance(k, str) and isinstance(v, kinds) for k, v in value.items())


def is_value(value: Any) -> TypeGuard[Value]:
    return value is None or isinstance(value, (int, float, bool, str))


def expect(condition: Any, name: str, expected: str) -> None:
    if not condition:
        raise KernelSyntaxError(f"{name} must be {expected}")
