"""Functions of libdevice in the interpreter, against Python's own mathematics: right, or said to be missing."""

import math
import struct
from statistics import NormalDist

import pytest
from scipy import special

NORMAL = NormalDist()
EXPECTED = {
    **{name: getattr(math, name) for name in (
        "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "ceil", "copysign", "cos", "cosh", "erf", "erfc",
        "exp", "expm1", "floor", "fmod", "lgamma", "log", "log10", "log1p", "log2", "pow", "remainder", "sin", "sinh",
        "sqrt", "tan", "tanh", "trunc", "cbrt", "exp2")},
    "abs": abs, "cospi": lambda x: math.cos(math.pi * x), "cyl_bessel_i0": special.i0, "cyl_bessel_i1": special.i1,
    "erfcinv": special.erfcinv, "erfcx": special.erfcx, "erfinv": special.erfinv, "exp10": lambda x: 10.0**x,
    "fast_dividef": lambda x, y: x / y, "fast_expf": math.exp, "fast_powf": math.pow,
    "fdim": lambda x, y: max(x - y, 0.0), "finitef": lambda x: 1, "float2int_rd": math.floor, "float2int_rn": round,
    "float2int_ru": math.ceil,
    "float2int_rz": int, "float2ll_rz": int, "float2uint_rn": lambda x: max(0, round(x)), "fma": lambda x, y,
    z: x * y + z, "isnan": lambda x: 0,
    "hypot": lambda x, y: math.hypot(x, y), "llrint": round, "llround": lambda x: math.trunc(x + math.copysign(0.5, x)),
    "logb": lambda x: math.frexp(x)[1] - 1, "nearbyint": round, "norm4d": lambda a, b, c, d: math.hypot(a, b, c, d),
    "normcdf": NORMAL.cdf, "normcdfinv": NORMAL.inv_cdf, "rcbrt": lambda x: 1 / math.cbrt(x), "rint": round,
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "round": lambda x: math.trunc(x + math.copysign(0.5, x)), "saturatef": lambda x: min(max(x, 0.0), 1.0),
    "signbit": lambda x: x < 0, "sinpi": lambda x: math.sin(math.pi * x), "tgamma": math.gamma,
    "div_rn": lambda x, y: x / y, "rcp_rn": lambda x: 1 / x, "sub_rn": lambda x, y: x - y,
    "rhypot": lambda x, y: 1 / math.hypot(x, y),
}  # fmt: skip
ABSENT = {
    "brev", "byte_perm", "clz", "ffs", "hadd", "mul24", "mulhi", "popc", "rhadd", "sad", "ilogb", "j0", "j1", "jn",
    "y0", "y1", "yn", "nextafter", "rcp64h", "double2hiint", "double2loint", "double_as_longlong", "hiloint2double",
    "longlong_as_double",
}  # fmt: skip
"""Functions that are missing, besides conversions and sums that round in a direction what float32 cannot hold."""


def expected(function, arguments):
    """The answer, or None where Python refuses the arguments or has no real one."""
    try:
        value = float(function(*arguments))
    except (ValueError, OverflowError, ZeroDivisionError, TypeError):
        return None
    return None if math.isnan(value) or math.isinf(value) else value


@pytest.mark.parametrize("name", EXPECTED)
def test_functions_are_right(results, name):
    function, types = EXPECTED[name], results["values"][name]
    columns = [results["samples"][n] for n in "abcd"]
    arity = next(n for n in (1, 2, 3, 4) if _takes(function, n))
    checked = 0
    for dtype, close in (("float32", 1e-6), ("float64", 1e-12)):
        rows = types.get(dtype) or []
        for arguments, value in zip(zip(*columns[:arity]), rows):
            if dtype == "float32":
                arguments = [_single(x) for x in arguments]
            right = expected(function, arguments)
            if right is not None and abs(right) < 1e30:
                checked += 1
                assert value == pytest.approx(right, rel=close, abs=close), (dtype, arguments)
    assert checked >= 6


def _single(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def _takes(function, number):
    try:
        function(*[0.5] * number)
    except TypeError:
        return False
    except (ValueError, ZeroDivisionError):
        return True
    return True


def test_what_is_missing_says_so(results):
    missing = {
        name: text for name, types in results["values"].items() for text in types.values() if isinstance(text, str)
    }
    assert all("not known here without a GPU" in text for text in missing.values())
    rounds_otherwise = {n for n in missing if n.endswith(("_rd", "_ru", "_rz")) or n.startswith("double2float_r")}
    assert set(missing) - rounds_otherwise == ABSENT & results["values"].keys()
    assert results["values"]["tanh"].keys() == {"float32", "float64"}  # what the library has, and nothing else


def test_directed_rounding_encloses_the_sum(results):
    a, b = ([_single(x) for x in results["samples"][n]] for n in "ab")
    for x, y, low, high, zero in zip(a, b, *(results["values"][f"mul_r{d}"]["float32"] for d in "duz")):
        assert low <= x * y <= high and abs(zero) <= abs(x * y) and zero in (low, high)
    assert results["values"]["mul_rd"]["float32"] != results["values"]["mul_ru"]["float32"]


def test_mixed_types_and_numbers_are_taken(results):
    a, b = results["samples"]["a"], results["samples"]["b"]
    assert results["calls"]["ldexp(a, b.to(tl.int32))"] == pytest.approx([math.ldexp(x, int(y)) for x, y in zip(a, b)])
    assert results["calls"]["scalbn(a, b.to(tl.int32))"] == results["calls"]["ldexp(a, b.to(tl.int32))"]
    assert results["calls"]["pow(a, b.to(tl.int32))"] == pytest.approx([x ** int(y) for x, y in zip(a, b)], rel=1e-5)
    assert results["calls"]["atan2(a, 0.5)"] == pytest.approx([math.atan2(x, 0.5) for x in a])


def test_they_are_counted(results):
    assert results["special"] == 16
