"""A kernel without a reference is its own: calls become a task, float64 in place of its floats is the right answer."""

import re
import sys

import pytest
import torch

from kernelsearch.core.errors import TaskError
from kernelsearch.kernel.targets import target_by_name
from kernelsearch.tasks.load import load
from kernelsearch.verify.error_samples import RoundingMode
from kernelsearch.verify.expectation import make_expectation
from kernelsearch.verify.regime_words import OWN_REFERENCE
from kernelsearch.worker.judging.case_choice import try_reference
from kernelsearch.worker.judging.own_reference import kernel_as_reference, run_evaluated
from kernelsearch.worker.judging.recorded_launcher import is_launcher, record_launcher
from kernelsearch.worker.judging.recorded_task import UNPACK, _pack

OPS = """import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, r_ptr, len_ptr, n, scale, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    length = tl.load(len_ptr + row)
    for start in range(0, length, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n + cols, mask=cols < length, other=0.0).to(tl.float32)
        r = tl.load(r_ptr + row * n + cols, mask=cols < length, other=0.0).to(tl.float32)
        tl.store(r_ptr + row * n + cols, (x * scale + r).to(r_ptr.dtype.element_ty), mask=cols < length)


def add_residual(x, residual, lengths, scale=1.0):
    assert x.is_cuda
    add_kernel[(x.shape[0],)](x, residual, lengths, x.shape[1], scale, BLOCK=64)


@triton.jit
def scatter_kernel(x_ptr, cache_ptr, slot_ptr, start_ptr, D: tl.constexpr):
    slot = tl.load(slot_ptr + tl.program_id(0)) + tl.load(start_ptr)
    at = tl.arange(0, D)
    tl.store(cache_ptr + slot * D + at, tl.load(x_ptr + tl.program_id(0) * D + at))


def scatter(x, cache, slots, starts):
    scatter_kernel[(x.shape[0],)](x, cache, slots, starts, D=16)
    return cache


def scaled(x):
    largest = x.float().abs().amax(-1, keepdim=True).clamp(min=1e-5)
    out = torch.zeros_like(x)
    lengths = torch.full((x.shape[0],), x.shape[1], dtype=torch.int32, device=x.device)
    add_residual((x / largest).to(x.dtype), out, lengths, 0.3)
    return out, largest


@triton.jit
def bits_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    bits = tl.load(x_ptr + at, mask=at < n).to(tl.int32, bitcast=True) & 0x7FFFFFFF
    tl.store(y_ptr + at, bits.to(tl.float32, bitcast=True), mask=at < n)


def magnitude(x):
    y = torch.empty_like(x)
    bits_kernel[(1,)](x, y, x.numel(), BLOCK=64)
    return y


@triton.jit
def rounds_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, (x + 12582912.0) - 12582912.0, mask=at < n)


@triton.jit
def halves_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n).to(tl.float16)
    tl.store(y_ptr + at, x.to(tl.bfloat16, bitcast=True).to(tl.float32), mask=at < n)


def rounded(x):
    y = torch.empty_like(x)
    rounds_kernel[(1,)](x, y, x.numel(), BLOCK=64)
    return y


def halved(x):
    y = torch.empty_like(x)
    halves_kernel[(1,)](x, y, x.numel(), BLOCK=64)
    return y


def viewed(x):
    return magnitude(x + 0.0).view(torch.int32)


def biased(x, bias, k, flag):
    return magnitude(x) + k if flag else magnitude(x)


@triton.jit
def pieces_kernel(x_ptr, y_ptr, start_ptr, len_ptr, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.load(start_ptr + row) + at, mask=at < tl.load(len_ptr + row), other=0.0)
    tl.store(y_ptr + row * BLOCK + at, x)


def pieces(x, starts, lengths):
    y = torch.empty(len(starts), 16, device=x.device)
    pieces_kernel[(len(starts),)](x, y, starts, lengths, BLOCK=16)
    return y


@triton.jit
def holes_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))
    tl.store(y_ptr + tl.program_id(0), tl.sum((x != x).to(tl.int32)))


def holes(x):
    y = torch.empty(x.shape[0], dtype=torch.int32, device=x.device)
    holes_kernel[(x.shape[0],)](x, y, BLOCK=16)
    return y


@triton.jit
def square_kernel(x_ptr, y_ptr):
    at = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)
    x = tl.load(x_ptr + at)
    tl.store(y_ptr + at, tl.dot(x, x))


def square(x):
    y = torch.empty_like(x)
    square_kernel[(1,)](x, y)
    return y


def noisy(x):
    return magnitude(x + torch.rand_like(x))


def kept(x):
    return magnitude(x)[x > 0]


@triton.jit
def assembly_kernel(x_ptr, y_ptr):
    x = tl.load(x_ptr + tl.arange(0, 16))
    y = tl.inline_asm_elementwise("neg.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    tl.store(y_ptr + tl.arange(0, 16), y)


def either(x, flag):
    y = torch.empty_like(x)
    if flag:
        assembly_kernel[(1,)](x, y)
    return y if flag else magnitude(x)


@triton.jit
def picked_kernel(x_ptr, label_ptr, mask_ptr, y_ptr, n, none, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    label = tl.load(label_ptr + row)
    words = tl.load(mask_ptr + row * tl.cdiv(n, 32) + tl.arange(0, BLOCK) // 32, mask=tl.arange(0, BLOCK) < n, other=0)
    on = tl.sum((words >> (tl.arange(0, BLOCK) % 32)) & 1)
    if label == none:
        tl.store(y_ptr + row, 0.0)
    else:
        tl.store(y_ptr + row, tl.load(x_ptr + row * n + label) + on.to(tl.float32))


def picked(x, labels, mask, out, none=-100):
    picked_kernel[(x.shape[0],)](x, labels, mask, out, x.shape[1], none, BLOCK=triton.next_power_of_2(x.shape[1]))
    return out


@triton.jit
def gate_kernel(x_ptr, bias_ptr, y_ptr, n, HAS_BIAS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(x_ptr + at, mask=at < n).to(tl.float32)
    if HAS_BIAS:
        y += tl.load(bias_ptr + at, mask=at < n).to(tl.float32)
    else:
        y = y * 2.0
    tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=at < n)


def gate(x, bias=None, *, out_dtype=torch.float32):
    y = torch.empty(x.shape, dtype=out_dtype, device=x.device)
    gate_kernel[(triton.cdiv(x.numel(), 64),)](x, bias, y, x.numel(), HAS_BIAS=bias is not None, BLOCK=64)
    return y


def summed(xs, scale):
    out = torch.zeros_like(xs[0])
    for x in xs:
        add_residual(x, out, torch.full((x.shape[0],), x.shape[1], dtype=torch.int32, device=x.device), scale)
    return out
"""
TEST = """import pytest
import torch
from ops import *


@pytest.mark.parametrize("rows, cols", [(3, 50), (8, 129), (5, 200)])
def test_add(rows, cols):
    x, r = (torch.randn(rows, cols, device="cuda", dtype=torch.float16) for _ in range(2))
    lengths = torch.randint(1, cols + 1, (rows,), device="cuda", dtype=torch.int32)
    on = torch.arange(cols, device="cuda") < lengths[:, None]
    want = torch.where(on, x.float() * 0.5 + r.float(), r.float())
    add_residual(x, r, lengths, 0.5)
    torch.testing.assert_close(r.float(), want, atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize("tokens, slots", [(3, 12), (7, 40), (11, 80)])
def test_scatter(tokens, slots):
    cache = torch.zeros(slots, 16, device="cuda")
    with pytest.raises(AttributeError):  # what a call raises is no call of the task
        scatter(None, cache, None, 3)
    starts = torch.tensor([0, 1, tokens], device="cuda")
    scatter(torch.rand(tokens, 16, device="cuda") + 1, cache, torch.randperm(slots)[:tokens].cuda(), starts)
"""


@pytest.fixture
def ops(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", sys.path[:])
    monkeypatch.setattr("sys.argv", ["calls.py"])
    monkeypatch.delitem(sys.modules, "ops", raising=False)
    (tmp_path / "ops.py").write_text(OPS)

    def record(name, script=TEST, file="test_ops.py"):
        sys.modules.pop("test_ops", None)
        (tmp_path / file).write_text(script)
        return record_launcher(str(tmp_path / file), str(tmp_path / "ops.py"), name)

    yield record
    sys.modules.pop("ops", None)


def test_calls_of_other_sizes_are_the_shapes_of_a_task(ops, tmp_path):
    assert is_launcher(str(tmp_path / "ops.py"), "add_residual") and not is_launcher(str(tmp_path / "ops.py"), "torch")
    text = ops("add_residual")
    assert 'reference = kernelsearch.kernel_as_reference(add_residual)\nLAUNCHER = "add_residual"\n' in text
    assert 'MUTATES = ["residual"]\n' in text and "DOMAIN" not in text
    inputs = text[text.index("    return [") : text.index("SHAPES")].split(",\n")
    assert [line.split("[\n")[-1].strip() for line in inputs[:4]] == [
        "torch.randn(x_0, x_1).to(torch.float16)",
        "torch.randn(x_0, x_1).to(torch.float16)",
        inputs[2].strip(),
        "0.5",
    ]
    assert re.match(r"torch\.randint\([01], x_1( \+ 1)?, \(x_0,\)\)\.to\(torch\.int32\)$", inputs[2].strip())
    test, timed = "    dict(x_0=3, x_1=50),\n    dict(x_0=5, x_1=200),\n", "    dict(x_0=8, x_1=129),\n"
    assert text.endswith(f"SHAPES = [\n{timed}]\nTEST_SHAPES = [\n{test}]\n")


def test_integers_keep_what_they_mean(ops):
    text = ops("scatter")
    assert 'MUTATES = ["cache"]\nDOMAIN = {"x": "positive", "slots": "fixed", "starts": "fixed"}\n' in text
    assert "torch.randperm(cache_0)[:x_0].reshape((x_0,)).to(torch.int64)" in text
    assert "torch.cat([torch.zeros(1, dtype=torch.int64), torch.randint(0, x_0 + 1, (3 - 2,)).sort().values" in text


LISTS = """from ops import *

for rows, count in ((3, 2), (8, 2), (4, 3), (5, 2)):
    xs = [torch.randn(rows, 40).cuda() for _ in range(count)]
    torch.testing.assert_close(summed(xs, 0.5), sum(xs) * 0.5)
"""


def test_tensors_of_a_list_are_inputs_one_by_one(ops, tmp_path):
    text = ops("summed", LISTS, "run.py")
    assert "def summed_of_tensors(xs_0, xs_1, scale):\n    return summed([xs_0, xs_1], scale)\n" in text
    assert 'kernel_as_reference(summed_of_tensors)\nLAUNCHER = "summed_of_tensors"\nMUTATES = []\n' in text
    assert "SHAPES = [\n    dict(xs_0_0=8),\n]" in text and "xs_0_0=4" not in text  # the call with three is left out
    (tmp_path / "summed_task.py").write_text(OPS + text)
    case = load(tmp_path / "summed_task.py").build("test:0", 0)
    one, two, _ = case.inputs
    torch.testing.assert_close(case.reference(*case.inputs), (one + two) * 0.5)


PICKED = """from ops import *

for rows, n in ((4, 70), (9, 130), (6, 300)):
    labels = torch.where(torch.rand(rows) < 0.3, -100, torch.randint(1, n, (rows,))).cuda()
    labels[0], labels[1] = -100, 1
    mask = torch.randint(-(2**31), 2**31, (rows, (n + 31) // 32), dtype=torch.int32).cuda()
    picked(torch.randn(rows, n).cuda(), labels, mask, torch.empty(rows).cuda())
"""


def test_sizes_labels_and_results_keep_what_they_mean(ops):
    text = ops("picked", PICKED, "calls.py")
    assert "(x_0, -(-x_1 // 32),)).to(torch.int32)" in text  # bits of words
    assert re.search(
        r"torch\.where\(torch\.rand\(\(x_0,\)\) < 0\.\d+, -100, torch\.randint\([01], x_1, \(x_0,\)\)\)", text
    )
    assert "        torch.zeros(x_0, dtype=torch.float32),\n        -100,\n" in text  # what it held decides nothing


GATES = """from ops import *

for n in (20, 130, 500):
    x = torch.randn(n).cuda()
    gate(x), gate(x, torch.randn(n).cuda()), gate(x, out_dtype=torch.bfloat16)
gate(torch.randn(3, 7).cuda())
"""


@pytest.mark.slow
def test_an_argument_may_be_none_or_given_by_name_and_every_form_is_judged(ops, tmp_path, run):
    text = ops("gate", GATES, "calls.py")
    left_out = "1 of 10 calls, with floats in 2 axes for x in place of floats in 1 axis"
    assert text.startswith(f"# Left out: {left_out}.\n")
    assert "def gate_of_tensors(x, bias, out_dtype):\n    return gate(x, bias, out_dtype=out_dtype)\n" in text
    assert "def get_inputs(x_0=500, out_dtype=torch.float32, has_bias=True)" in text
    assert "        torch.randn(x_0).to(torch.float32) if has_bias else None,\n        out_dtype,\n" in text
    done = run("verify", "ops.py:gate", "--call", "calls.py")
    assert done.code == 0 and f"note: --call leaves out {left_out}." in done.err and "leaves out in" not in done.err
    kernel = OPS[OPS.index("@triton.jit\ndef gate") : OPS.index("def gate(")]
    for right, wrong in (("y += tl.load(bias", "y -= tl.load(bias"), ("y * 2.0", "y * 2.01")):
        head = "import triton\nimport triton.language as tl\n\n\n"
        (tmp_path / "kernel.py").write_text(head + kernel.replace(right, wrong))
        assert run("verify", "ops_gate.py", "kernel.py").json["verdict"] == "reject-wrong", wrong


def test_calls_before_one_that_cannot_be_evaluated_are_kept(ops):
    script = "from ops import *\nfor flag in {}:\n    either(torch.randn(16).cuda(), flag)\n"
    assert "        False,\n" in ops("either", script.format("(False, True)"), "run.py")
    with pytest.raises(TaskError, match="assembly_kernel cannot be evaluated without a GPU"):
        ops("either", script.format("(True, False)"), "run.py")


BAD = {
    "add_residual": (
        "print('nothing')",
        "run.py ended without a call of add_residual of ops.py that gives or changes a tensor",
    ),
    "scaled": ("scaled(torch.zeros(2**12, 2**12 + 1).cuda())", "changes a tensor and is small enough for a CPU"),
    "noisy": (
        "noisy(torch.randn(8).cuda())",
        "a call of noisy is not deterministic, two runs on the same inputs differ",
    ),
    "kept": ("kept(torch.randn(40).cuda())", "the sizes of what kept gives follow the values of its inputs"),
    "magnitude": (
        "assert magnitude(torch.randn(8).cuda()).sum() < 0",
        "run.py fails with magnitude as it stands, before anything of it is rewritten: AssertionError (line 2)",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_recorded_is_one_line(ops, name):
    script, said = BAD[name]
    with pytest.raises(TaskError, match=re.escape(said)) as told:
        ops(name, f"from ops import *\n{script}\n", "run.py")
    assert "\n" not in str(told.value)


def test_a_test_that_fails_is_named_with_its_line(ops):
    with pytest.raises(
        TaskError, match=r"test_ops.py fails with add_residual as it stands.* test_add\[3-50\]: .*\(line "
    ):
        ops("add_residual", TEST.replace("* 0.5 + r", "* 0.75 + r"))


def make(ops, tmp_path, name, more):
    own = f"import kernelsearch\n\nreference = kernelsearch.kernel_as_reference({name})\nLAUNCHER = '{name}'\n"
    (tmp_path / f"{name}_task.py").write_text(f"{OPS}\n\n{own}{more}")
    return load(tmp_path / f"{name}_task.py")


def widen(case):
    return [v.double() if torch.is_tensor(v) and v.is_floating_point() else v for v in case.inputs]


def test_the_right_answer_has_float64_for_every_float_of_kernels_and_launcher(ops, tmp_path):
    inputs = "def get_inputs(rows=4, cols=100): return [torch.randn(rows, cols, dtype=torch.bfloat16)]\n"
    case = make(ops, tmp_path, "scaled", f"{inputs}TEST_SHAPES = [dict(rows=4)]\n").build("test:0", 0)
    x = case.inputs[0].double()
    largest = x.abs().amax(-1, keepdim=True).clamp(min=1e-5)
    out, scale = case.reference64(*widen(case))
    assert out.dtype == scale.dtype == torch.float64 and torch.equal(scale, largest)
    torch.testing.assert_close(out, x / largest * 0.3, rtol=1e-14, atol=0)
    own, _ = case.reference(*case.inputs)
    assert own.dtype == torch.bfloat16 and 1e-4 < float((own.double() - out).abs().max()) < 1e-2
    with RoundingMode(2.0**-24, 3):
        moved, _ = case.reference64(*widen(case))
    assert 2.0**-26 < float(((moved - out) / out).abs().max()) < 2.0**-21
    made = make_expectation(case.reference64, case.reference, case.inputs)
    assert made.notes == (OWN_REFERENCE,) and float((made.outputs[0].expected - out).abs().max()) == 0


def test_what_an_input_holds_afterwards_is_of_float64_too(ops, tmp_path):
    inputs = (
        "def get_inputs(rows=4, cols=100):\n    x = torch.randn(rows, cols, dtype=torch.float16)\n"
        "    return [x, x + 1, torch.arange(rows, dtype=torch.int32) * 9, 0.3]\nMUTATES = ('residual',)\n"
    )
    case = make(ops, tmp_path, "add_residual", f"{inputs}TEST_SHAPES = [dict(rows=4)]\n").build("test:0", 0)
    x, before, lengths, _ = widen(case)
    given = [x, before.clone(), lengths, 0.3]
    assert case.reference64(*given) is None
    on = torch.arange(100) < lengths[:, None]
    torch.testing.assert_close(given[1], torch.where(on, x * 0.3 + before, before), rtol=1e-15, atol=0)


def test_bits_of_floats_have_the_kernels_own_answer_and_that_is_said(ops, tmp_path):
    inputs = "def get_inputs(n=50): return [torch.randn(n)]\nTEST_SHAPES = [dict(n=33)]\n"
    case = make(ops, tmp_path, "magnitude", inputs).build("test:0", 0)
    made = make_expectation(case.reference64, case.reference, case.inputs)
    assert torch.equal(made.outputs[0].expected, case.inputs[0].abs().double())
    assert made.notes == (
        f"{OWN_REFERENCE}; it does not run in float64 (bits_kernel cannot be evaluated in float64: "
        "tt.bitcast depends on the bits of floats or addresses): what it gives at its own precision is the truth",
    )


OWN_ANSWERS = {
    "rounded": torch.round,
    "halved": lambda x: x.half().view(torch.bfloat16).float(),
    "viewed": lambda x: x.abs().view(torch.int32),
}


@pytest.mark.parametrize("name", OWN_ANSWERS)
def test_what_the_precision_of_floats_decides_has_the_kernels_own_answer(ops, tmp_path, name):
    inputs = "def get_inputs(n=50): return [torch.randn(n)]\nTEST_SHAPES = [dict(n=33)]\n"
    case = make(ops, tmp_path, name, inputs).build("test:0", 0)
    made = make_expectation(case.reference64, case.reference, case.inputs)
    own = OWN_ANSWERS[name](case.inputs[0])
    assert torch.equal(made.outputs[0].expected, own.double() if own.is_floating_point() else own)
    assert "what it gives at its own precision is the truth" in made.notes[0]


def test_a_fault_of_the_kernel_is_its_own_and_no_result(ops, tmp_path):
    task = make(ops, tmp_path, "magnitude", "def get_inputs(n=50): return [torch.randn(n)]\n")
    with pytest.raises(RuntimeError, match=r"bits_kernel: 1 lanes of a load in program .* lie outside"):
        run_evaluated(lambda x: task.module.bits_kernel[(1,)](x, x[:-1].clone(), 10, BLOCK=64) or x, [torch.ones(9)])
    assert kernel_as_reference(task.module.magnitude).__name__ == "magnitude"


WRONG = "@triton.jit\n" + OPS[OPS.index("def add_kernel") : OPS.index("\n\n\ndef add_residual")]


@pytest.mark.slow
def test_a_wrong_rewrite_is_refused_a_right_one_accepted_and_the_verdict_says_whose_faults_stay(run, tmp_path):
    (tmp_path / "ops.py").write_text(OPS)
    (tmp_path / "test_ops.py").write_text(TEST)
    head = "import triton\nimport triton.language as tl\n\n\n"
    (tmp_path / "wrong.py").write_text(head + WRONG.replace("start + tl.arange", "start + 1 + tl.arange"))
    (tmp_path / "right.py").write_text(head + WRONG.replace("x * scale + r", "r + scale * x"))
    judged = run("verify", "ops.py:add_residual", "wrong.py", "--call", "test_ops.py")
    assert judged.code == 1 and '"reject-wrong"' in judged.out, judged.out + judged.err
    right = run("verify", "ops_add_residual.py", "right.py")
    assert right.code == 0, right.out + right.err
    for done in (judged, right):
        assert done.out.count("the kernel is its own reference: its faults stay") == 1
    assert run("seed", "ops.py:add_residual").out.startswith("ops_add_residual.py has its kernel, which is its own")


def test_flags_are_no_numbers_and_a_tensor_may_be_empty(ops):
    script = "import torch\nfrom ops import *\nfor n, k in ((20, 1), (30, 0), (40, None)):\n"
    text = ops("biased", script + "    biased(torch.randn(n).cuda(), torch.empty(0).cuda(), k, bool(k))\n", "calls.py")
    assert "torch.empty(0, dtype=torch.float32)" in text
    assert re.search(r"\bk=[01]\b", text) and re.search(r"\bflag=(True|False)\b", text)


PIECES = """from ops import *
for rows in (3, 5, 8):
    lengths = (torch.arange(rows, dtype=torch.int32) % 3 + 4).cuda()
    starts = (lengths.cumsum(0) - lengths).to(torch.int32)
    pieces(torch.randn(int(lengths.sum())).cuda(), starts, lengths)
"""


def test_integers_that_cannot_be_drawn_keep_the_values_of_their_calls(ops, tmp_path):
    text = ops("pieces", PIECES, "calls.py")
    assert re.search(r'"starts": "fixed"|"lengths": "fixed"', text) and "call='2'" in text
    (tmp_path / "pieces_task.py").write_text(f"{OPS}\n\n{text}")
    task = load(tmp_path / "pieces_task.py")
    for key, seed in ((key, seed) for key, _ in (*task.shapes, *task.test_shapes) for seed in range(9)):
        case = task.build(key, seed)
        assert case.reference(*case.inputs).shape[0] == len(case.inputs[1])


def test_many_recorded_integers_are_packed_and_come_back_as_they_were():
    value, space = torch.arange(300, dtype=torch.int32).reshape(3, 100) % 7, {"torch": torch}
    exec(f"import base64, zlib{UNPACK}", space)
    assert torch.equal(eval(_pack(value), space), value) and "unpack_recorded" not in _pack(value[0, :64])


def test_values_that_are_no_numbers_are_drawn_where_a_call_had_some(ops):
    script = "from ops import *\nx = torch.randn(6, 16).cuda()\nx[1, :3] = x[4, 2:] = torch.nan\nholes(x)\n"
    text = ops("holes", script, "calls.py")
    assert 'DOMAIN = {"x": "fixed"}' in text and "torch.where(torch.rand(6, 16) < 0.18, torch.nan" in text


def test_what_a_kernels_own_product_does_is_the_contract(ops):
    text = ops("square", "from ops import *\nsquare(torch.randn(16, 16).cuda())\n", "calls.py")
    assert 'PRECISION = "tf32"' in text


def test_no_errors_are_sampled_where_all_results_are_integers():
    runs = []

    def count(x):
        runs.append(x)
        return x.sum(-1)

    make_expectation(count, count, [torch.arange(12).reshape(3, 4)])
    assert len(runs) <= 3


def test_whether_a_kernel_takes_a_size_is_not_told_without_running_it(ops, tmp_path):
    task = make(ops, tmp_path, "magnitude", "def get_inputs(n=50): return [torch.randn(n)]\nTEST_SHAPES=[dict(n=33)]\n")
    assert try_reference(task, "test:0", target_by_name("h100")) == OWN_REFERENCE


HALF = """import torch
import triton
import triton.language as tl

import kernelsearch


@triton.jit
def half_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0)
    tl.store(y_ptr + at, x + 1, mask=(at < n) & (x % 2 == 0))


def half(x):
    y = torch.empty_like(x)
    half_kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
    return y


reference = kernelsearch.kernel_as_reference(half)
LAUNCHER = "half"


def get_inputs(n=500):
    return [torch.randint(0, 100, (n,), dtype=torch.int32)]


TEST_SHAPES = [dict(n=90)]
"""


@pytest.mark.slow
def test_places_that_a_kernel_leaves_unwritten_are_left_so(run, tmp_path):
    (tmp_path / "half.py").write_text(HALF)
    own = HALF[HALF.index("@triton.jit") : HALF.index("\n\ndef half(x)")].replace(" & (x % 2 == 0)", "")
    (tmp_path / "full.py").write_text(f"import triton\nimport triton.language as tl\n\n\n{own}")
    done = run("verify", "half.py")
    assert done.code == 0 and "it leaves places of its outputs unwritten" in done.out, done.out + done.err
    full = run("verify", "half.py", "full.py")
    assert full.code == 1 and '"reject-wrong"' in full.out, full.out + full.err
