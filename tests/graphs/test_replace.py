"""Kernels in the place of regions change nothing but what runs: values, gradients, sizes that vary, caches."""

from dataclasses import replace
from unittest import mock

import pytest
import torch
from graph_models import make_model, run_step, see_regions, stand_in, stand_ins

from kernelsearch.graphs.replace import PlacedKernels


@pytest.mark.parametrize("dynamic", [False, True])
def test_loss_and_gradients_are_the_same_to_the_last_bit(dynamic):
    model, calls = make_model(), []
    seen, plain = see_regions(model, dynamic=dynamic)
    record = PlacedKernels(stand_ins(seen, calls))
    found = run_step(model, record.make_pass(), dynamic=dynamic)
    assert len(record.replaced) == len(seen) and sorted(calls) == sorted(t.digest for _, t in seen)
    assert all(map(torch.equal, found, plain))


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


def test_results_that_lie_otherwise_are_laid_out_as_the_graph_expects():
    model, calls = make_model(), []
    seen, plain = see_regions(model, dynamic=False)
    chosen = next(t for _, t in seen if "split" in t.operations)
    kernel = stand_ins(seen, calls)[chosen.digest]
    assert not chosen.outputs[0].meta["val"].is_contiguous()
    other = replace(kernel, identity="contiguous", call=lambda *inputs: kernel.call(*inputs).contiguous())
    found = run_step(model, PlacedKernels({chosen.digest: other}).make_pass(), dynamic=False)
    assert len(calls) == 2 and all(map(torch.equal, found, plain))
