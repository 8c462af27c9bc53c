"""What a seed says that does nothing is left out, so that the gate takes it and every edit still applies."""

import pytest
import triton
import triton.language as tl

from kernelsearch.core.types import TaskFacts
from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.edits import EDITS, NotApplicable
from kernelsearch.tasks.module import import_file
from kernelsearch.tasks.seed import extract_seed
from kernelsearch.verify import gate

FILE = """
import triton
import triton.language as tl
import triton.language as T
from triton.language import device_print as show

LIMIT = tl.constexpr(3)
MODE = tl.constexpr(1)


@triton.jit
def act(x, kind: tl.constexpr):
    return x * 2 if kind == "twice" else x


@triton.jit
def k(x_ptr, y_ptr, x_stride, n_rows, n_cols, BLOCK: tl.constexpr{params}):
    row = tl.program_id(0)
    {first}
    best = tl.full([BLOCK], float("-inf"), tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * x_stride + cols, mask=cols < n_cols, other=float("-inf"){load}).to(tl.float32)
        {middle}
        best = tl.maximum(best, x{maximum})
    top = tl.max(best, 0)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * x_stride + cols, mask=cols < n_cols, other=float("-inf")).to(tl.float32)
        total += tl.exp(x - top)
    {last}
    tl.store(y_ptr + row, tl.log(tl.sum(total, 0)) + top)
"""
NOTHING = {"params": "", "first": "pass", "load": "", "middle": "pass", "maximum": "", "last": "pass"}

LEFT_OUT = {
    "static_print": {"middle": "tl.static_print(f'{BLOCK=}', x)"},
    "device_print": {"middle": "T.device_print('x', x)"},
    "print by another name": {"middle": "show('x', x)"},
    "print": {"first": "print('row', row)"},
    "device_assert": {"middle": "tl.device_assert(cols >= 0, f'{BLOCK} is wrong')"},
    "assert": {"first": "assert BLOCK % 16 == 0, f'{BLOCK=}'"},
    "value of nothing": {"first": "row % 3"},
    "under a condition": {"first": "if BLOCK > 64:\n        tl.static_print('wide')\n    else:\n        print(row)"},
    "under one of several": {"last": "if row == 0:\n        top += 0.0\n    elif row == 1:\n        print(row)"},
    "on one line": {"last": "print(row); print(top)"},
    "pass": {"middle": "pass", "last": "if row == 0: pass"},
    "over lines": {"last": "tl.device_print(\n        'sum',\n        total,\n    )"},
    "evict_last": {"load": ", eviction_policy='evict_last'"},
}
KEPT = {
    "static_assert": {"first": "tl.static_assert(BLOCK >= 16)"},
    "static_assert with a made message": {"first": "tl.static_assert(BLOCK >= 16, f'{BLOCK} < 16')"},
    "static_assert with a long message": {"first": f"tl.static_assert(BLOCK >= 16, {'no ' * 100!r})"},
    "PropagateNan": {"maximum": ", propagate_nan=tl.PropagateNan.ALL"},
    "PropagateNan by another name": {"maximum": ", propagate_nan=T.PropagateNan.NONE"},
    "power of constants": {"first": "scale: tl.constexpr = 2.0 ** (127 - 15)"},
    "root": {"first": "scale: tl.constexpr = BLOCK ** -0.5"},
    "float of a number": {"first": "least = float('-1e20')"},
    "word to a helper": {"first": "least = act(2.0, 'once')"},
}
HINDERED = {"static_assert": {"rows_2d"}, "word": {"rows_2d"}, "PropagateNan": {"online"}}  # online has no word for NaN
DEFAULTS = {
    "number": ("128", 128),
    "negative": ("-1", -1),
    "global": ("LIMIT", 3),
    "arithmetic": ("1 << 4", 16),
    "infinite": ("float('-inf')", float("-inf")),
    "word": ("'gelu'", "gelu"),
    "evict_last": ("'evict_last'", ""),
    "none": ("None", None),
}


@pytest.fixture
def extract(tmp_path):
    """Reads the kernel of a file with these pieces as a seed."""

    def read(**pieces):
        (path := tmp_path / "task.py").write_text(FILE.format(**{**NOTHING, **pieces}))
        module = import_file(path, f"idle_{abs(hash((tmp_path, str(pieces))))}")
        return extract_seed({"k": module.k})

    return read


def list_edits(kernel: Kernel) -> set[str]:
    task = TaskFacts("t", "t.py", "0" * 16, "native", kernel.render(), ("k",), (), (), {}, {})
    return {edit.name for edit in EDITS if not isinstance(edit.apply(kernel, task), NotApplicable)}


def test_a_replaced_print_is_a_print_too(extract, monkeypatch):
    """Ray puts one of its own into every process that it is used in."""
    monkeypatch.setattr("builtins.print", lambda *args, **kwargs: None)
    assert "print" not in extract(**LEFT_OUT["print"]).kernel.render()


@pytest.mark.slow
@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_does_nothing_is_left_out(extract, name):
    seed, plain = extract(**LEFT_OUT[name]), extract()
    verdict = gate.check(seed.kernel.render())
    assert verdict.accepted, verdict.reason
    edits = list_edits(plain.kernel)
    assert list_edits(seed.kernel) == edits or "one" in name.split()
    assert "rows_2d" in edits, "straight-line code only"
    text = seed.kernel.render()
    assert "print" not in text and "assert" not in text and "evict_last" not in text
    assert bool(seed.notes) == (name == "evict_last"), "only what changes the time is said"


@pytest.mark.slow
@pytest.mark.parametrize("name", KEPT)
def test_what_is_harmless_is_allowed(extract, name):
    seed, plain = extract(**KEPT[name]), extract()
    assert seed.notes == ()
    verdict = gate.check(seed.kernel.render())
    assert verdict.accepted, verdict.reason
    assert list_edits(plain.kernel) - list_edits(seed.kernel) <= HINDERED.get(name.split()[0], set())


@pytest.mark.slow
@pytest.mark.parametrize("name", DEFAULTS)
def test_a_default_is_the_value_that_python_gave_it(extract, name):
    text, value = DEFAULTS[name]
    seed = extract(params=f", D: tl.constexpr = {text}")
    verdict = gate.check(seed.kernel.render())
    assert verdict.accepted, verdict.reason
    assert seed.kernel.function("k").defaults == {"D": value}
    assert list_edits(seed.kernel) == list_edits(extract().kernel)


def test_a_parameter_may_have_the_name_of_a_literal(extract):
    seed = extract(params=", INIT: tl.constexpr = True", first="if INIT:\n        row += 0")
    assert gate.check(seed.kernel.render()).accepted


def test_the_names_are_tritons_own():
    assert tl.PropagateNan.ALL != tl.PropagateNan.NONE and triton.__version__
