"""Kernels in the place of regions change nothing but what runs: values, gradients, sizes that vary, caches."""

from dataclasses import replace
from unittest import mock

import pytest
import torch
from gate_operator import gate
from graph_models import make_model, run_step, see_regions, stand_in, stand_ins
from torch._guards import detect_fake_mode
from torch._inductor import config, scheduler
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from kernelsearch.graphs.replace import PlacedKernels, RegionKernel, layouts_of
from kernelsearch.graphs.watch import RegionPass
from kernelsearch.kernel.targets import target_by_name
from kernelsearch.worker.launcher.inductor import _lower, _stand_in


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True])
def test_loss_and_gradients_are_the_same_to_the_last_bit(dynamic):
    model, calls = make_model(), []
    seen, plain = see_regions(model, dynamic=dynamic)
    record = PlacedKernels(stand_ins(seen, calls))
    found = run_step(model, record.make_pass(), dynamic=dynamic)
    assert len(record.replaced) == len(seen) and sorted(calls) == sorted(t.digest for _, t in seen)
    assert all(map(torch.equal, found, plain))


@pytest.mark.slow
def test_a_dynamic_graph_runs_kernels_at_judged_sizes_only():
    model, calls = make_model(), []
    seen, plain = see_regions(model, lengths=(96, 80), dynamic=True)
    norm = next(t for _, t in seen if "rsqrt" in t.operations and "embedding" not in t.operations)
    kernel = stand_in(norm, calls)
    with mock.patch("torch.compile", lambda function, **options: function):  # what runs elsewhere, without Inductor
        assert kernel.operator
    record = PlacedKernels({norm.digest: kernel})
    found = run_step(model, record.make_pass(), lengths=(96, 80), dynamic=True)
    assert len(record.replaced) == 2 and len(calls) == 2
    assert all(map(torch.equal, found, plain))


@pytest.mark.slow
def test_a_static_graph_of_other_sizes_stays_as_it_is():
    model, calls, told = make_model(), [], []
    seen, _ = see_regions(model, dynamic=False)
    norm = next(t for _, t in seen if "rsqrt" in t.operations and "embedding" not in t.operations)
    record = PlacedKernels({norm.digest: stand_in(norm, calls)}, told.append)
    run_step(model, record.make_pass(), lengths=(80,), dynamic=False)
    assert not calls and not record.replaced
    assert len(told) == 1 and "d0=3, d1=80, d2=64) were not judged" in told[0]


def test_a_new_record_has_another_identity():
    seen, _ = see_regions(make_model(), dynamic=False)
    (_, one), (_, two) = seen[:2]
    kernels = stand_in(one, [], "a"), stand_in(one, [], "b"), stand_in(two, [], "a")
    records = [{}, *({k.region: k} for k in kernels), {k.region: k for k in kernels[1:]}]
    identities = [PlacedKernels(r).make_pass().uuid() for r in records]
    assert len(set(identities)) == len(records)
    assert PlacedKernels(records[1]).make_pass().uuid() == identities[1]


@pytest.mark.slow
def test_results_that_lie_otherwise_are_laid_out_as_the_graph_expects():
    model, calls = make_model(), []
    seen, plain = see_regions(model, dynamic=False)
    chosen = next(t for _, t in seen if "split" in t.operations)
    kernel = stand_ins(seen, calls)[chosen.digest]
    assert not chosen.outputs[0].meta["val"].is_contiguous()
    other = replace(kernel, identity="contiguous", call=lambda *inputs: kernel.call(*inputs).contiguous())
    found = run_step(model, PlacedKernels({chosen.digest: other}).make_pass(), dynamic=False)
    assert len(calls) == 2 and all(map(torch.equal, found, plain))


def refuse_trace(*inputs):
    raise RuntimeError("its kernel takes tensor descriptors")


@pytest.mark.parametrize("traceable", [gate, refuse_trace, None])
def test_inductor_writes_the_launches_that_torch_can_trace(traceable):
    """What Inductor writes for a GPU, here without one."""
    with FakeTensorMode():
        x, y = (torch.empty(64, 64, device="cpu:0") for _ in range(2))
    layouts = frozenset([layouts_of([x, y])])

    def place(module, tasks):
        ((_, task),) = tasks
        counts, reference = (2, 1), task.load()["reference"]
        kernel = RegionKernel(task.digest, f"{traceable}", reference, reference, *counts, layouts, traceable)
        PlacedKernels({task.digest: kernel})(module, tasks)

    def run(x, y):
        return ((torch.sigmoid(x) * y) @ y,)

    there = _stand_in(target_by_name("h100"), "", False), config.patch(post_grad_custom_pre_pass=RegionPass(place))
    guard = mock.patch.object(scheduler, "device_need_guard", lambda kind: False)
    with torch.no_grad(), detect_fake_mode([x]), there[0], there[1], guard:
        text = _lower(make_fx(run)(x, y), [x, y])
    call = text[text.index("def call(") :]
    if traceable is gate:
        assert "gate_kernel_0.run(" in call and "kernelsearch_regions" not in call
        assert call.count("empty_strided_cpu(") == 2  # what the kernel writes, and the product: nothing is copied
    else:
        assert "torch.ops.kernelsearch_regions.r" in call and "gate_kernel" not in call
