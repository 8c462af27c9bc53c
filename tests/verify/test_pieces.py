"""An output that is judged in pieces gets the verdicts that it gets whole."""

import weakref

import pytest
import torch
from torch.utils._pytree import tree_leaves

from kernelsearch.verify import error_samples, expectation, pieces, tolerance
from kernelsearch.verify.dispatch import DispatchMode
from kernelsearch.verify.judge import judge, measure_spread

SHAPES = [(37, 200), (5000,), (700, 3), (3, 9, 130), ()]


def compute(x):
    """Elements of all sizes, whose error is not that of one rounding."""
    scale = torch.arange(1, x.numel() + 1, device=x.device).reshape(x.shape).to(x.dtype)
    return torch.exp(torch.sin(x)) * scale


@pytest.fixture
def small_pieces(monkeypatch):
    for module in (pieces, tolerance):
        monkeypatch.setattr(module, "PIECE", 1024)
    monkeypatch.setattr(pieces, "PIECE_ON_CPU", 1024)
    for module in (pieces, expectation):
        monkeypatch.setattr(module, "LARGE", 1)


def expect(shape, seed=3):
    torch.manual_seed(seed)
    x = torch.randn(shape)
    return x, expectation.make_expectation(compute, compute, [x], seed=seed)


@pytest.mark.parametrize("shape", SHAPES[:-1])
def test_the_limits_are_those_of_the_whole(shape, small_pieces, monkeypatch):
    _, cut = expect(shape)
    (output,) = cut.outputs
    assert isinstance(output, expectation.LargeOutput) and len(list(output.pieces())) > 1
    with monkeypatch.context() as context:
        context.setattr(tolerance, "PIECE", 10**9)
        ((whole, _),) = output.pieces()
    parts = [piece for piece, _ in output.pieces()]
    element = torch.cat([p.limits.element.reshape(-1) for p in parts])
    assert torch.equal(element, whole.limits.element.reshape(-1))
    assert torch.equal(torch.cat([p.limits.rms for p in parts]), whole.limits.rms)
    assert [p.start for p in parts] == [start for start, _ in tolerance.list_pieces(shape)]


@pytest.mark.parametrize("shape", SHAPES)
def test_right_is_accepted_and_wrong_is_named(shape, small_pieces):
    x, expected = expect(shape)
    right = compute(x)
    assert judge(expected, [right]).accepted
    assert judge(expected, [right + 0.25 * (right - right.bfloat16())]).error_ratio > 1
    wrong = right.clone()
    wrong.reshape(-1)[-1] *= 1.001
    verdict = judge(expected, [wrong])
    assert not verdict.accepted and verdict.detail["index"] == [n - 1 for n in shape]
    unwritten = right.clone()
    unwritten.reshape(-1)[-1] = float("nan")
    assert "not written" in judge(expected, [unwritten]).reason
    assert measure_spread(expected, [right], [wrong]) > 1 > measure_spread(expected, [right], [right])


def test_an_output_without_finite_elements_is_dropped_in_pieces_too(small_pieces):
    x = torch.full((40, 100), float("nan"))
    assert "non-finite in 4000 of 4000" in expectation.make_expectation(compute, compute, [x]).dropped


def test_a_result_with_shared_memory_is_moved_too():
    """Where one number in memory is many elements of a result, each moves by itself."""
    moved = error_samples.RoundingMode(1e-3, 1)._move(torch.full((1,), 1.5).expand(1000))
    assert len(set(moved.tolist())) == 16


class LiveBytes(DispatchMode):
    """The most bytes that the results of torch's operations had in memory at a time."""

    def __init__(self):
        super().__init__()
        self.owners, self.now, self.most = {}, 0, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in (t for t in tree_leaves(result) if isinstance(t, torch.Tensor)):
            storage = tensor.untyped_storage()
            key, size = storage._cdata, storage.nbytes()
            self.now += 0 if self.owners.get(key) else size
            self.owners[key] = self.owners.get(key, 0) + 1
            self.most = max(self.most, self.now)
            weakref.finalize(tensor, self.forget, key, size)
        return result

    def forget(self, key, size):
        self.owners[key] -= 1
        self.now -= 0 if self.owners[key] else size


@pytest.mark.slow
def test_a_large_output_is_judged_in_a_dozen_times_its_bytes(small_pieces):
    """Of 6 GiB, the largest of a known benchmark, on a GPU that has 140 and another process beside."""
    x = torch.randn(256, 2048)
    with LiveBytes() as counted:
        expected = expectation.make_expectation(torch.relu, torch.relu, [x])
        assert judge(expected, [torch.relu(x)]).accepted
    assert counted.most < 10 * x.nbytes
