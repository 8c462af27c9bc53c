"""The list of the language against the installed Triton: every name exists, with these parameters."""

import inspect

import pytest

from kernelsearch import language

tl = pytest.importorskip("triton.language")


@pytest.mark.parametrize("name", language.FUNCTIONS)
def test_function_has_these_parameters(name):
    function = getattr(tl, name)
    signature = inspect.signature(getattr(function, "fn", function))
    known = tuple(p for p in signature.parameters if not p.startswith("_"))
    assert known[: len(language.FUNCTIONS[name])] == language.FUNCTIONS[name]


def test_every_listed_name_exists():
    from triton.language.extra import libdevice

    assert [n for n in language.LIBDEVICE if not hasattr(libdevice, n)] == []
    assert [n for n in language.DTYPES if not hasattr(tl, n)] == []
    assert [n for n in language.MATH_FUNCTIONS if not hasattr(tl.math, n)] == []
    owners = (tl.tensor, tl.tensor_descriptor, tl.dtype, tl.constexpr)
    assert [n for n in language.METHODS if not any(hasattr(o, n) for o in owners)] == []


def test_back_doors_are_not_listed():
    assert not {"inline_asm_elementwise", "device_print", "static_print", "core", "extra"} & set(language.FUNCTIONS)
    assert "evict_last" not in language.WORDS
    names = language.ATTRIBUTES | language.METHODS
    assert not [n for n in names if n.startswith("_")] and not names & {"handle", "fn", "run"}
