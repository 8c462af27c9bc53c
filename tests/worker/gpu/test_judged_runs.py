"""Parts of judging on a GPU that need none: moved elements, equal bits, wiped scratch, a memory's key."""

import gc
import weakref
from types import SimpleNamespace

import pytest
import torch

from kernelsearch.kernel.launch import Buffer, HostDescriptor, LaunchStep, Passed
from kernelsearch.kernel.source import Kernel
from kernelsearch.tasks.module import import_file
from kernelsearch.trial.profile import evaluated_config_key
from kernelsearch.verify.bits import same_bits
from kernelsearch.worker.gpu import judged_runs
from kernelsearch.worker.gpu.launching import KnownLaunch, Launcher
from kernelsearch.worker.launcher import tensors
from kernelsearch.worker.launcher.intercept import intercept_launches

KERNEL = """
import triton
import triton.language as tl


@triton.jit
def k(x_ptr, BLOCK: tl.constexpr{more}):
    tl.store(x_ptr, BLOCK)
"""


def kernel_file(folder):
    (folder / "kept.py").write_text(KERNEL.format(more=""))
    return folder / "kept.py"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_few_elements_move_and_come_back(dtype):
    value = torch.randn(500, 40).to(dtype)
    before = value.clone()
    where, was = judged_runs._move_elements(value, 3)
    changed = (value != before).sum().item()
    assert 0 < changed <= judged_runs.MOVED and torch.isfinite(value).all()
    value.view(-1)[where] = was
    assert torch.equal(value, before)
    again, _ = judged_runs._move_elements(value.clone(), 3)
    other, _ = judged_runs._move_elements(value.clone(), 4)
    assert torch.equal(again, where) and not torch.equal(other, where)


@pytest.mark.parametrize("value", [3, None, torch.arange(9), torch.randn(4, 6).T, torch.empty(0)])
def test_what_cannot_move_stays(value):
    assert judged_runs._move_elements(value, 1) is None


def test_equal_is_equal_bit_for_bit():
    nan = torch.tensor([float("nan"), 0.0])
    assert same_bits(nan, nan.clone())
    assert not same_bits(torch.tensor([0.0]), torch.tensor([-0.0]))
    assert not same_bits(nan, nan.double()) and not same_bits(nan, nan[:1])
    assert same_bits(torch.empty(0), torch.empty(0))


def test_scratch_starts_as_it_is_asked_to():
    halves, whole = Buffer("fp16", (4,)), Buffer("i32", (4,), zero=True)
    assert torch.isnan(tensors.make_scratch(halves, "cpu")).all()
    assert (tensors.make_scratch(halves, "cpu", 1.0) == 1.0).all()
    assert (tensors.make_scratch(whole, "cpu") == 0).all() and (tensors.make_scratch(whole, "cpu", 1.0) == 0).all()


def test_a_call_keeps_nothing_that_waits_for_the_garbage_collector(tmp_path, monkeypatch):
    """An output may be 6 GiB, and the collector counts objects: twenty calls of a timing would fill a GPU."""
    module = import_file(kernel_file(tmp_path), "kept")
    step = LaunchStep("k", {"x_ptr": HostDescriptor(Passed("x_ptr"), (8, 16), (16, 1), (4, 16))}, {}, {}, (1, 1, 1))
    plan = SimpleNamespace(plan=SimpleNamespace(scratch={}, init={}, steps=[step]))
    monkeypatch.setattr(Launcher, "_bind", lambda *_: KnownLaunch(plan, [None]))
    launcher = Launcher(SimpleNamespace(config={}), {}, execute=lambda *_: None)
    gc.collect()
    gc.disable()
    try:
        for grid in ((1,), lambda meta: (meta["BLOCK"],)):
            x = torch.zeros(8, 16)
            kept = weakref.ref(x)
            with intercept_launches(launcher):
                module.k[grid](x, BLOCK=1)
            del x
            assert kept() is None
    finally:
        gc.enable()


def test_wiping_takes_what_a_call_left_in_its_scratch():
    launcher = Launcher(None, {})
    left = torch.full((3,), 77.0)
    launcher.used.append(left)
    launcher.wipe()
    assert torch.isnan(left).all() and not launcher.used


def test_a_launch_option_that_a_kernel_takes_is_part_of_what_it_computes():
    plain, taking = (Kernel.parse(KERNEL.format(more=more)) for more in ("", ", num_warps: tl.constexpr"))
    few, many = {"BLOCK": 1, "num_warps": 4}, {"BLOCK": 1, "num_warps": 8}
    assert evaluated_config_key(plain, few) == evaluated_config_key(plain, many)
    assert evaluated_config_key(taking, few) != evaluated_config_key(taking, many)
