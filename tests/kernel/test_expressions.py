"""The launch spec's arithmetic agrees with Python's own on what it knows, and refuses everything else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelsearch.core.errors import ExpressionError
from kernelsearch.core.types import TensorFact
from kernelsearch.kernel import expressions
from kernelsearch.kernel.expressions import MAX_MAGNITUDE, Scope, cdiv, evaluate, next_power_of_2, validate

NAMES = {"n": 50257, "m": 7, "z": 0, "neg": -3, "flag": True, "half": 0.5}
TENSOR = TensorFact("fp32", (7, 50), (64, 1))
SCOPE = Scope({**NAMES, "x": TENSOR, "f": 0.5, "none": None}, num_sms=132, grid=(5, 6))
PYTHON = {
    "__builtins__": {"min": min, "max": max, "int": int}, **NAMES, "num_sms": 132, "cdiv": lambda a, b: -(-a // b),
    "next_power_of_2": lambda n: 1 << max(0, n - 1).bit_length(), "grid": lambda i: (5, 6, 1)[i],
}  # fmt: skip


def trees():
    leaves = st.one_of(
        st.integers(0, 2**20).map(str),
        st.sampled_from([*NAMES, "num_sms", "True", "False", "grid(0)", "grid(2)", "0.25", "1e-5", "3.0"]),
    )

    def larger(inner):
        return st.one_of(
            st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "//", "%", "==", "!=", "<", "<=", ">", ">="]), inner)
            .map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
            st.tuples(inner, st.sampled_from(["&", "|", "^", "<<", ">>"]), inner)
            .map(lambda t: f"(int({t[0]}) {t[1]} int({t[2]} % 62))"),
            st.tuples(st.sampled_from(["min", "max"]), inner, inner).map(lambda t: f"{t[0]}({t[1]}, {t[2]})"),
            st.tuples(inner, inner).map(lambda t: f"cdiv(int({t[0]}), int({t[1]}))"),
            inner.map(lambda t: f"next_power_of_2(int({t}) % 4096)"),
            inner.map(lambda t: f"(~int({t}))"),
            # truth values only: the launch spec's `and` and `or` do not hand on their operands
            st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(
                lambda t: f"((not {t[0]}) {t[1]} ({t[2]} > 0))"
            ),
            st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} if {t[1]} else {t[2]})"),
            inner.map(lambda t: f"(not {t})"),
            inner.map(lambda t: f"(-{t})"),
        )  # fmt: skip

    return st.recursive(leaves, larger, max_leaves=8).filter(lambda t: len(t) < expressions.MAX_LENGTH)


def pythons_answer(text):
    """What Python says, a division by zero or a value that is no number being None."""
    try:
        return eval(text, dict(PYTHON))  # generated above, from a closed grammar
    except (ZeroDivisionError, OverflowError, ValueError):
        return None


@given(trees())
def test_agrees_with_python(text):
    validate(text)
    try:
        value = evaluate(text, SCOPE)
    except ExpressionError as error:
        assert pythons_answer(text) is None or "2**62" in str(error)
        return
    assert value == pythons_answer(text)


@given(st.lists(trees(), min_size=1, max_size=3))
def test_a_grid_is_a_tuple_of_values(texts):
    whole = f"({', '.join(texts)},)"
    try:
        values = tuple(evaluate(text, SCOPE) for text in texts)
    except ExpressionError:
        with pytest.raises(ExpressionError):
            evaluate(whole, SCOPE)
        return
    if len(whole) <= expressions.MAX_LENGTH:
        assert evaluate(whole, SCOPE) == values


REFUSED = [
    "__import__('os')", "n.bit_length()", "x.shape[0]", "x[0]", "[n]", "{n: 1}", "{n}", "lambda: n", "n ** m",
    "n << 63", "n << -1", "1 >> 99999999999", "n | half", "half & 1", "~half", "1 << half", "n & (1, 2)",
    "cdiv(half, 2)", "next_power_of_2(half)", "grid(half)", "shape(x, half)", "1e300", "1e999", "1e18 * 1e18", "n / 0",
    "+n", "'text'", "None", "...", "f'{n}'", "1j", "b'x'",
    "0 < n < 5", "n is m", "n in (1, 2)", "[i for i in (1, 2)]", "min(*(1, 2))", "min(a=1)", "cdiv(a=1, b=2)",
    "print(n)", "eval(n)", "n := 5", "(n := 5)", "await n", "yield", "shape(x, i=0)", "max()", "x if", "", "n;m",
    "import os", "n\nm", "(n).real", "min(n)(m)", "*n", "n if m", "9" * 30, "shape", "n @ m",
]  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_anything_else_is_refused(text):
    with pytest.raises(ExpressionError):
        evaluate(text, SCOPE)


@given(st.text(max_size=60))
def test_no_text_does_worse_than_an_expression_error(text):
    try:
        value = evaluate(text, SCOPE)
    except ExpressionError:
        return
    assert isinstance(value, (int, float, tuple))


def test_tensor_facts():
    assert evaluate("(shape(x, 0), stride(x, 0), shape(x, -1), numel(x))", SCOPE) == (7, 64, 50, 350)
    assert evaluate("aligned(x)", SCOPE) is True and evaluate(
        "not aligned(y)", Scope({"y": TensorFact("fp32", (7,), (1,), False)})
    )
    for text in (
        "aligned(n)",
        "shape(x, 2)",
        "shape(x, -3)",
        "shape(x)",
        "shape(n, 0)",
        "shape(y, 0)",
        "numel(3)",
        "shape(x, 0, 1)",
    ):
        with pytest.raises(ExpressionError):
            evaluate(text, SCOPE)


def test_names_without_an_integer_value():
    for text, said in (
        ("q", "not an argument"),
        ("none", "not a number"),
        ("x", "not a number"),
    ):
        with pytest.raises(ExpressionError, match=said):
            evaluate(text, SCOPE)
    with pytest.raises(ExpressionError, match="grid is not known"):
        evaluate("grid(0)", Scope())
    assert evaluate("grid(0)", Scope(grid=lambda: (9,))) == 9
    assert evaluate("f * 3 / 2", SCOPE) == 0.75


def test_limits():
    assert evaluate(str(MAX_MAGNITUDE), SCOPE) == MAX_MAGNITUDE
    for text in (
        str(MAX_MAGNITUDE + 1),
        f"{MAX_MAGNITUDE} * 2",
        "n + " * 120 + "n",
        f"next_power_of_2({MAX_MAGNITUDE})*2",
    ):
        with pytest.raises(ExpressionError):
            evaluate(text, SCOPE)
    for text in ("-" * 60 + "1", "-" * 398 + "1", "not " * 99 + "1", "(" * 150 + "1" + ",)" * 100):
        for check in (validate, lambda t: evaluate(t, SCOPE)):
            with pytest.raises(ExpressionError):
                check(text)


def test_validate_knows_forms_without_values():
    validate("(cdiv(unknown, BLOCK), shape(y, 0))")
    for text in ("n ** 2", "foo(n)", "n.x"):
        with pytest.raises(ExpressionError):
            validate(text)


@given(st.integers(-(2**40), 2**40), st.integers(1, 2**20))
def test_cdiv_rounds_up(a, b):
    assert cdiv(a, b) * b >= a > (cdiv(a, b) - 1) * b


@given(st.integers(1, 2**61))
def test_next_power_of_2(n):
    power = next_power_of_2(n)
    assert power >= n and power & (power - 1) == 0 and power < 2 * n
