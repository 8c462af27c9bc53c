"""The list of the language against the installed Triton: every name exists, with these parameters."""

import inspect

import pytest

from kernelsearch.kernel import language

tl = pytest.importorskip("triton.language")


LISTED = language.functions_of(language.installed_version())


def parameters(name):
    function = getattr(tl, name)
    signature = inspect.signature(getattr(function, "fn", function))
    return tuple(p for p in signature.parameters if not p.startswith("_"))


@pytest.mark.parametrize("name", LISTED)
def test_function_has_these_parameters(name):
    assert parameters(name)[: len(LISTED[name])] == LISTED[name]


def test_the_version_is_that_of_the_module():
    import triton

    assert ".".join(triton.__version__.split(".")[:2]) == ".".join(map(str, language.installed_version()))


def test_what_is_not_listed_for_this_version_is_gone():
    """What block pointers need is here whole or not at all, and nothing else depends on the version."""
    assert language.functions_of((3, 6)) == language.functions_of((3, 8)) == language.FUNCTIONS
    missing = language.FUNCTIONS.keys() - LISTED.keys()
    assert missing == (
        set() if language.installed_version() <= language.LAST_BLOCK_POINTERS else {"make_block_ptr", "advance"}
    )
    for name in missing & set(dir(tl)):
        with pytest.raises(NotImplementedError, match="removed"):
            getattr(tl, name)(*[None] * len(language.FUNCTIONS[name]), _semantic=object())
    for name in LISTED:
        assert not set(language.FUNCTIONS[name]) - set(LISTED[name]) & set(parameters(name)), name


def test_without_block_pointers_all_else_stays():
    old, new = (language.functions_of(version) for version in ((3, 8), (3, 9)))
    assert {n: p for n, p in old.items() if n not in language.BLOCK_POINTERS}.items() <= new.items()
    assert new["load"] == ("pointer", "mask", "other", "cache_modifier", "eviction_policy", "volatile")
    assert new["store"] == ("pointer", "value", "mask", "cache_modifier", "eviction_policy")
    assert old.keys() - new.keys() == {"make_block_ptr", "advance"}


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
