"""Short forms of erf, tanh and GELU keep their bound over every 16-bit value, and stand only where it is hidden."""

from __future__ import annotations

import math
import sys
from types import SimpleNamespace

import edit_seeds as seeds
import numpy as np
import pytest

from kernelsearch.propose.edits import NotApplicable, edit_named
from kernelsearch.propose.edits.short_functions import BOUND, ERF_OVER_X, FORMS, LOG2_OF_PHI

sys.path.insert(0, str(seeds.ROOT / "scripts"))
import fit_functions

EXACT = {
    "gelu": lambda x: 0.5 * x * math.erfc(-x / math.sqrt(2.0)),
    "erf": math.erf,
    "tanh": math.tanh,
    "one plus tanh": lambda x: 2.0 / (1.0 + math.exp(min(-2.0 * x, 700.0))),
}
TL = SimpleNamespace(abs=np.abs, where=lambda test, a, b: np.where(test, a, b).astype(np.float32), exp2=np.exp2)
BITS = np.arange(2**16, dtype=np.uint16)
TYPES = {  # values, bits after the point, exponent of the smallest normal number
    "bfloat16": ((BITS.astype(np.uint32) << 16).view(np.float32), 7, -126),
    "float16": (BITS.view(np.float16).astype(np.float32), 10, -14),
}


def evaluate(form: str, x: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return eval(FORMS[form], {"tl": TL, "x": x})


def count_ulps(form: str, x: np.ndarray, bits: int, least: int) -> np.ndarray:
    """Errors in ulps of the output, beyond what GELU's own formula loses in float32 next to x = -5."""
    exact, got = np.array([EXACT[form](float(v)) for v in x]), evaluate(form, x)
    assert got.dtype == np.float32
    ulp = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(exact), 2.0**least))) - bits)
    lost = 2.0**-24 * np.abs(x) if form == "gelu" else 2.0**-126
    return np.maximum(np.abs(got - exact) - lost, 0.0) / ulp


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("form", FORMS)
def test_error_stays_below_the_bound_at_every_value(form, name):
    values, bits, least = TYPES[name]
    between = np.random.default_rng(0).uniform(-12, 12, 5000).astype(np.float32)
    error = count_ulps(form, np.concatenate([values[np.isfinite(values)], between]), bits, least)
    assert error.max() <= BOUND == 0.25


def test_one_coefficient_less_is_beyond_it():
    """The test can fail, and no form is longer than it must be."""
    values, bits, least = TYPES["float16"]
    values = values[np.isfinite(values) & (np.abs(values) < 5)]
    shorter = [fit_functions.fit_log2_of_phi(degree=4), fit_functions.fit_erf(degree=6)]
    for form, used, fitted in zip(("gelu", "erf"), (LOG2_OF_PHI, ERF_OVER_X), shorter, strict=True):
        text = FORMS[form]
        for old, new in zip(used, [*fitted, 0.0], strict=True):
            text = text.replace(repr(old), repr(new))
        FORMS["shorter"], EXACT["shorter"] = text, EXACT[form]
        assert count_ulps("shorter", values, bits, least).max() > BOUND
        del FORMS["shorter"]


@pytest.mark.parametrize("form", FORMS)
def test_infinity_and_nan_come_out_as_of_the_function(form):
    got = evaluate(form, np.array([math.inf, -math.inf, math.nan], np.float32))
    wanted = {"gelu": (math.inf, math.nan), "one plus tanh": (2.0, 0.0)}.get(form, (1.0, -1.0))
    assert np.array_equal(got, [*wanted, math.nan], equal_nan=True)


def test_coefficients_are_those_of_the_script():
    assert np.allclose(fit_functions.fit_log2_of_phi(), LOG2_OF_PHI, rtol=1e-4)
    assert np.allclose(fit_functions.fit_erf(), ERF_OVER_X, rtol=1e-3)


BODY = """
x = tl.load(x_ptr + tl.arange(0, BLOCK)).to(tl.float32)
{lines}
tl.store(y_ptr + tl.arange(0, BLOCK), y)
"""


def shortened(lines: str):
    return edit_named("short_functions").apply(seeds.drawn(BODY.format(lines=lines)), seeds.task("softmax"))


@pytest.mark.parametrize(
    ("lines", "form"),
    [
        ("y = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))", "tl.exp2(-1.00004"),
        ("y = x * 0.5 * (tl.erf(x / 1.4142135623730951) + 1)", "tl.exp2(-1.00004"),
        ("cdf = 0.5 * (1.0 + tl.math.erf(x * 0.70710678118))\ny = x * cdf", "tl.exp2(-1.00004"),
        ("y = 0.5 * x * (1.0 + libdevice.tanh(0.797 * (x + 0.0447 * x * x * x)))", "argument * -2.885"),
        ("y = tl.where(x > 3, libdevice.tanh(x) * 2.0, x).to(tl.float16)", "x * 2.885"),
        ("z = -libdevice.tanh(x)\ny = z / 3.0", "x * 2.885"),
        ("y = x * tl.erf(x)", "1.128330"),
        ("y = 1.0 + tl.erf(x)", None),  # cancels
        ("y = libdevice.tanh(x) - x", None),
        ("y = tl.sum(tl.erf(x), 0)", None),
        ("y = x\nfor i in range(3):\n    y = y * tl.erf(x)", None),  # errors add up
        ("z = tl.erf(x)\ny = z * z", None),
        ("z = tl.erf(x)\nif n_cols > 3:\n    tl.store(y_ptr, tl.sum(z, 0))\ny = z", None),
        ("y = x * tl.exp(x)", None),
        ("y = x * tanh(x)", None),  # a helper's own
    ],
)
def test_it_stands_where_the_output_is_a_product_and_nowhere_else(lines, form):
    result = shortened(lines)
    if form is None:
        assert isinstance(result, NotApplicable), result[0].kernel.code
        return
    (only,) = result
    assert "if y_ptr.dtype.element_ty.primitive_bitwidth == 16:" in only.kernel.code and form in only.kernel.code
    exact = next(line for line in reversed(lines.splitlines()) if "tanh" in line or "cdf)" in line or "erf" in line)
    assert exact in only.kernel.code.partition("primitive_bitwidth")[2] or exact.startswith("cdf = ")


def test_every_output_must_have_sixteen_bits():
    body = BODY.format(lines="y = tl.erf(x)\ntl.store(x_ptr + tl.arange(0, BLOCK), y)")
    (only,) = edit_named("short_functions").apply(seeds.drawn(body), seeds.task("softmax"))
    assert all(f"{p}.dtype.element_ty.primitive_bitwidth == 16" in only.kernel.code for p in ("x_ptr", "y_ptr"))
