"""On a GPU: shipped seeds are accepted and timed, and a candidate that goes wrong costs nobody but itself."""

import pytest
import torch

from kernelsearch.core.types import Evidence, Word
from kernelsearch.kernel.source import Kernel
from kernelsearch.tasks import shipped
from kernelsearch.trial import Evaluation
from kernelsearch.trial.bench import Bench

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

LINES = {
    "store": "    tl.store(y_ptr + row * y_stride + cols, y.to(y_ptr.dtype.element_ty), mask=mask)\n",
    "sum": "    denominator = tl.sum(numerator, axis=0)\n",
}


@pytest.fixture(scope="module")
def softmax():
    """The softmax task, opened once: a candidate's crash must leave it fit for the next."""
    with Bench.open(shipped.path("softmax")) as bench:
        yield Evaluation(bench, ("timed:1",))


def changed(evaluation, old, new):
    text = evaluation.bench.seed.render()
    assert old in text
    return Kernel.parse(text.replace(old, new))


def honest_is_accepted(evaluation):
    outcome = evaluation.evaluate(evaluation.bench.seed, {"num_warps": 8})
    assert outcome.verdict.word is Word.ACCEPT, outcome.verdict
    return outcome


@pytest.mark.parametrize("name", shipped.names())
def test_shipped_seeds_are_accepted_and_timed(name):
    with Bench.open(shipped.path(name)) as bench:
        outcome = Evaluation(bench).evaluate(bench.seed, bench.facts.config)
        assert outcome.verdict.word is Word.ACCEPT, outcome.verdict
        assert outcome.verdict.depth == "full" and outcome.verdict.referee.mode == "gpu"
        measurement = outcome.measurement
        assert measurement.evidence is Evidence.MEASURED and measurement.device == bench.device.name
        for shape in bench.facts.shapes:
            time_us = measurement.time_us(shape.key)
            floor = max(0, shape.bytes_moved - bench.target.l2_bytes) / (bench.target.bandwidth_gbps * 1e3)
            assert time_us > floor and time_us > 1.0, (shape.label, time_us, floor)


def test_a_wrong_kernel(softmax):
    wrong = changed(softmax, LINES["sum"], LINES["sum"].rstrip() + " * 1.001\n")
    outcome = softmax.evaluate(wrong, {"num_warps": 4})
    assert outcome.verdict.word is Word.WRONG and outcome.verdict.error_ratio > 1 and outcome.measurement is None
    honest_is_accepted(softmax)


def test_a_store_outside_its_buffer(softmax):
    outside = LINES["store"] + "    tl.store(y_ptr - 8 + row * 0 + tl.arange(0, 4), tl.zeros((4,), tl.float32))\n"
    outcome = softmax.evaluate(changed(softmax, LINES["store"], outside), {"num_warps": 4})
    assert outcome.verdict.word is Word.MEMORY, outcome.verdict
    honest_is_accepted(softmax)


def test_an_illegal_address(softmax):
    far = LINES["store"] + "    tl.store(y_ptr + (row + 1).to(tl.int64) * 1000000000000 + cols, y, mask=mask)\n"
    outcome = softmax.evaluate(changed(softmax, LINES["store"], far), {"num_warps": 4})
    assert outcome.verdict.word is Word.CRASH, outcome.verdict
    honest_is_accepted(softmax)


def test_an_endless_loop(softmax):
    impatient = Evaluation(softmax.bench, ("timed:1",), limit_s=8.0)
    endless = (
        LINES["sum"]
        + "    while denominator >= 0.0:\n        denominator += tl.load(x_ptr).to(tl.float32) * 0.0 + 1.0\n"
    )
    outcome = impatient.evaluate(changed(softmax, LINES["sum"], endless), {"num_warps": 4})
    assert outcome.verdict.word is Word.TIMEOUT, outcome.verdict
    honest_is_accepted(softmax)


def test_equal_work_takes_equal_time(softmax):
    """The same candidate twice: within what one warm device repeats to, with room for a busy one."""
    first, second = (honest_is_accepted(softmax).measurement.time_us("timed:1") for _ in range(2))
    assert 0.8 < first / second < 1.25


def tensors():
    base = torch.arange(4096, dtype=torch.float32, device="cuda")
    matrix = torch.randn(64, 48, device="cuda")
    return {
        "plain": base, "sliced": base[1:100], "transposed": matrix.t(), "strided": matrix[::2, 1::3],
        "shared": base[2048:], "half": torch.randn(33, device="cuda").to(torch.bfloat16)[3:],
        "expanded": torch.ones(1, 5, device="cuda").expand(7, 5),
        "bool": torch.ones(17, dtype=torch.bool, device="cuda"), "number": torch.tensor(3.0, device="cuda"),
        "long": torch.arange(9, device="cuda")[2:], "empty": torch.empty(0, 4, device="cuda"),
    }  # fmt: skip


def test_arena_views_are_the_tensors_twins():
    from kernelsearch.worker.gpu.arena import Arena

    given = tensors()
    before = {name: tensor.clone() for name, tensor in given.items()}
    arena = Arena()
    views = arena.stage(given, ("kernel", "n=1"))
    for name, tensor in given.items():
        view = views[name]
        assert (view.dtype, view.shape, view.stride()) == (tensor.dtype, tensor.shape, tensor.stride()), name
        assert torch.equal(view, tensor), name
        if tensor.numel():
            assert view.data_ptr() % 256 == tensor.data_ptr() % 256, name
            assert view.data_ptr() != tensor.data_ptr(), name
    # two views of one storage are two views of one slot
    assert views["shared"].data_ptr() - views["plain"].data_ptr() == 2048 * 4
    views["plain"][2048] = -1.0
    assert views["shared"][0] == -1.0
    arena.collect()
    arena.check()
    assert given["shared"][0] == -1.0 and torch.equal(given["transposed"], before["transposed"])
    assert (views["plain"].view(torch.uint8) == 0xFF).all()  # nothing of a launch is there for the next one


def test_an_arena_sets_the_bits_of_addresses():
    from kernelsearch.worker.gpu.arena import ALIGNED, SPAN, Arena, random_place

    given = {name: torch.zeros(1000, device="cuda")[1:] for name in "xy"}
    for place in (0, 1, SPAN // ALIGNED - 1):
        arena = Arena(lambda p=place: p)
        assert {v.data_ptr() % SPAN // ALIGNED for v in arena.stage(given, ("kernel", "n=1")).values()} == {place}
        arena.collect()
        arena.check()
    assert len({random_place() for _ in range(9)}) > 1


def test_a_full_arena_begins_again():
    from kernelsearch.worker.gpu.arena import SIZE, Arena

    tensor, arena = torch.zeros(SIZE // 16, dtype=torch.uint8, device="cuda"), Arena()
    for _ in range(40):
        arena.stage({"x": tensor}, ("kernel", "n=1"))["x"].add_(1)
        arena.collect()
    arena.check()
    assert arena.memory.numel() == SIZE and (tensor == 40).all()
    arena.stage({"x": torch.zeros(SIZE, dtype=torch.uint8, device="cuda")}, ("kernel", "n=2"))
    assert arena.memory.numel() > SIZE


@pytest.mark.parametrize("where", ["before", "behind"])
def test_the_guards_see_one_byte(where):
    from kernelsearch.worker.gpu.arena import Arena, GuardBroken

    tensor, arena = torch.zeros(100, device="cuda"), Arena()
    for name in "abc":
        arena.stage({"x": tensor}, (name, "n=100"))
        arena.collect()
    at, behind, _ = arena.slots[1]
    arena.memory[at - 1 if where == "before" else behind] = 7
    with pytest.raises(GuardBroken, match="^b overwrote 1 bytes outside its buffers, at n=100$"):
        arena.check()


FLAGS = """
import torch
import triton
import triton.language as tl


def reference(x, relu: bool = False, square: bool = False, negate: bool = False):
    z = torch.relu(x) if relu else x
    z = z * z if square else z
    return -z if negate else z


def get_inputs(n=4096, relu=False, square=False, negate=False):
    return [torch.randn(n), relu, square, negate]


@triton.jit
def flags_kernel(x_ptr, y_ptr, n, relu, square, negate, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    z = tl.load(x_ptr + at, mask=at < n, other=0.0)
    z = tl.where(relu != 0, tl.maximum(z, 0.0), z)
    z = tl.where(square != 0, z * z, z)
    tl.store(y_ptr + at, tl.where(negate != 0, -z, z), mask=at < n)


def flags(x, relu: bool = False, square: bool = False, negate: bool = False):
    y = torch.empty_like(x)
    flags_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), int(relu), int(square), int(negate), BLOCK=1024)
    return y
"""


def test_flags_have_a_binary_for_each_of_their_values(tmp_path):
    """Triton compiles 0 and 1 apart: a judged case of every pair of values lacks a binary of its own."""
    (tmp_path / "flags.py").write_text(FLAGS)
    with Bench.open(tmp_path / "flags.py") as bench:
        outcome = Evaluation(bench).evaluate(bench.seed, bench.facts.config)
    assert outcome.verdict.word is Word.ACCEPT, outcome.verdict


def test_long_rows_are_judged_at_other_values_than_timed_ones(softmax):
    """A kernel that is wrong only where long rows have values far apart was right at short and at timed rows."""
    apart = "(n_cols > 4096) & (tl.min(tl.where(mask, x, 0.0), axis=0) < -12.0)"
    wrong = changed(softmax, LINES["sum"], f"{LINES['sum'].rstrip()} * tl.where({apart}, 1.01, 1.0)\n")
    outcome = softmax.evaluate(wrong, {"num_warps": 8})
    assert outcome.verdict.word is Word.WRONG, outcome.verdict
    honest_is_accepted(softmax)
