"""What a compiler would have to unroll, inline or compute is counted before it begins."""

import pytest

from kernelsearch.core.types import LaunchFact
from kernelsearch.kernel.launch import LaunchError, make_plan
from kernelsearch.kernel.source import Kernel
from kernelsearch.kernel.unrolling import find_excess
from kernelsearch.verify import gate

HEAD = "import triton\nimport triton.language as tl\n\n"
HELPERS = "".join(f"@triton.jit\ndef h{i}(x):\n    return h{i + 1}(x) + h{i + 1}(x)\n\n\n" for i in range(24))
LAST = "@triton.jit\ndef h24(x):\n    return x\n\n\n"
BOMBS = {
    "default of a helper": "y = repeat(x)",
    "static range": "for i in tl.static_range(10 ** 9):\n    x = x + 0.0",
    "static range by name": "for i in tl.static_range(arg2=1000000000, arg1=0):\n    pass",
    "nested": "for i in tl.static_range(2000):\n    for j in tl.static_range(i):\n        x += 0.0",
    "squares": "m = 3\nfor i in tl.static_range(64):\n    m = m * m",
    "squares in a branch": "m = 3\nif n > 1:\n    for i in tl.static_range(64):\n        m *= m",
    "doubled tuple": "t = (1, 2)\nfor i in tl.static_range(40):\n    t = t + t",
    "nested tuples": "t = (1, 2)\n" + "t = (t, t)\n" * 30,
    "doubled text": "t = 'inf'\n" + "t += t\n" * 30,
    "nested loops": "\n".join("    " * i + f"for i{i} in range(n):" for i in range(20)) + "\n" + "    " * 20 + "x += 1",
}
OF_CONSTEXPR = {
    "power": "y = 2 ** N",
    "shift": "y = 1 << N",
    "loop": "for i in tl.static_range(N):\n    pass",
    "tuple": "t = (1, 2)\nt = t * N",
    "text": "t = 'inf'\nt = t * N",
    "helper": "y = repeat(x, N)",
}


def kernel_with(body, spec=""):
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    repeat = "@triton.jit\ndef repeat(x, M: tl.constexpr = 1000000000):\n"
    repeat += "    for i in tl.static_range(M):\n        x += 1\n    return x\n"
    entry = "@triton.jit\ndef k(x_ptr, n, N: tl.constexpr):\n    x = tl.load(x_ptr)\n"
    return f"{HEAD}{spec}{HELPERS + LAST if 'h0' in body else ''}{repeat}\n\n{entry}{lines}    tl.store(x_ptr, x)\n"


def plan(text, config):
    kernel = Kernel.parse(text)
    fact = LaunchFact("k", {"x_ptr": None, "n": 3, "N": 4}, {}, (1,))
    return make_plan(kernel, ("k",), config, fact, lambda meta: (1,), 2)


@pytest.mark.slow
@pytest.mark.parametrize("body", BOMBS.values(), ids=BOMBS)
def test_the_gate_refuses_what_is_too_much_for_a_compiler(body):
    verdict = gate.check(kernel_with(body.replace("10 ** 9", "1000000000")))
    assert not verdict.accepted and verdict.reason.startswith("k ")


def test_the_gate_refuses_helpers_that_double():
    assert "too much to compile" in gate.check(kernel_with("y = h0(x)")).reason


@pytest.mark.parametrize("body", OF_CONSTEXPR.values(), ids=OF_CONSTEXPR)
def test_a_launch_is_refused_whose_constexprs_are_too_much_for_a_compiler(body):
    text = kernel_with(body)
    assert gate.check(text).accepted
    assert plan(text, {"N": 7}).steps
    assert not gate.check(kernel_with(body, "CONFIG = {'N': 100000000}\n\n")).accepted
    for given in (10**8, "100000 * 1000"):
        with pytest.raises(LaunchError, match="k (makes|is too much)"):
            plan(text, {"N": given})


@pytest.mark.parametrize(
    "body",
    [
        "for i in tl.static_range(64):\n    x += (1 << i) * 3.0",
        "t = (1, 2)\nfor i in tl.static_range(500):\n    t = (i, i + 1)",
        "m = 1\nfor i in range(n):\n    m = m * 1664525 + 1013904223",
        "if N == 3:\n    y = 1 << (N * 1000)",
        "y = (1 << N * 1000) if N == 3 else 1",
        "y = 0xFFFFFFFFFFFFFFFF * 3",
    ],
)
def test_honest_constants_and_loops_are_let_through(body):
    text = kernel_with(body)
    assert gate.check(text).accepted and plan(text, {"N": 2}).steps


def test_words_of_one_length_are_not_one_word():
    text = kernel_with("if N == 'relu':\n    pass\nelse:\n    y = 1 << 1000")
    assert find_excess(Kernel.parse(text).code, "k", (("N", "gelu"),))


@pytest.mark.parametrize(
    "option",
    [
        {"num_warps": 64},
        {"num_warps": 1048576},
        {"num_warps": 3},
        {"num_warps": 0},
        {"num_warps": 4.0},
        {"num_warps": True},
        {"num_warps": "1 << 20"},
        {"k.num_warps": 64},
        {"num_ctas": 1048576},
        {"num_stages": 1000000},
        {"num_stages": -1},
        {"maxnreg": 100000},
    ],
    ids=str,
)
def test_a_config_obeys_the_limits_of_a_space(option):
    text = kernel_with("y = x")
    assert plan(text, {"num_warps": 32, "num_stages": 8, "num_ctas": 1, "maxnreg": None}).steps
    with pytest.raises(LaunchError, match="is not possible: num_warps is a power of two up to 32"):
        plan(text, option)
    accepted = gate.check(kernel_with("y = x", f"CONFIG = {option!r}\n\n")).accepted
    assert accepted == isinstance(option.get("num_warps"), str)  # an expression is known at the launch


def test_a_file_launches_so_many_steps_at_most():
    few, many = (kernel_with("y = x", f"LAUNCHES = {['k'] * count!r}\n\n") for count in (16, 3000))
    assert gate.check(few).accepted
    assert gate.check(many).reason == "line 4: LAUNCHES has more than 64 steps"
