"""Regions of compiled graphs: what they hold, and that isomorphic ones have one digest whatever their sizes."""

import pytest
import torch
from graph_models import make_model, run_step, see_regions
from torch import nn

from kernelsearch.graphs.watch import RegionPass


@pytest.fixture(scope="module")
def static():
    return see_regions(make_model(), dynamic=False)[0]


def digests(seen):
    return [task.digest for _, task in seen]


@pytest.mark.slow
def test_more_layers_have_the_same_regions():
    two, three = (see_regions(make_model(layers), dynamic=False)[0] for layers in (2, 3))
    assert len(three) > len(two)
    assert set(digests(three)) == set(digests(two))


@pytest.mark.slow
def test_sizes_are_parameters_that_other_sizes_share(static):
    other = see_regions(make_model(), lengths=(80,), batch=5, dynamic=False)[0]
    assert digests(other) == digests(static)
    assert [t.sizes for _, t in other] != [t.sizes for _, t in static]


@pytest.mark.slow
def test_a_dynamic_graph_has_the_digests_of_a_static_one(static):
    assert digests(see_regions(make_model(), dynamic=True)[0]) == digests(static)


def test_a_half_of_a_head_is_no_parameter(static):
    rotary = next(t for _, t in static if "split" in t.operations)
    assert 16 not in rotary.sizes.values() and ", 8, -1)" in rotary.text


def test_the_text_of_a_region_is_the_region(static):
    for region, task in static:
        scope = {}
        exec(task.write(task.sizes), scope)
        inputs = scope["get_inputs"]()
        for given, node in zip(inputs, task.inputs, strict=True):
            value = node.meta["val"]
            assert (given.shape, given.dtype, given.stride()) == (value.shape, value.dtype, value.stride())
        results = scope["reference"](*inputs)
        results = results if isinstance(results, tuple) else (results,)
        for result, node in zip(results, region.outputs, strict=True):
            value = node.meta["val"]
            assert (result.shape, result.dtype, result.stride()) == (value.shape, value.dtype, value.stride())


class Unusual(nn.Module):
    """Random numbers, a mutated buffer and a sum without order beside ordinary operations."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(64))
        self.table = nn.Embedding(256, 64)

    def forward(self, tokens, labels):
        x = nn.functional.dropout(self.table(tokens).sin().exp(), 0.3, training=True)
        self.count.add_(x.detach().mean((0, 1)).cos())
        return nn.functional.layer_norm(x.tanh() * 2, (64,)).sum()


def test_random_numbers_mutations_and_unordered_sums_are_outside():
    seen, names = [], set()

    def act(module, tasks):
        names.update(str(n.target) for n in module.graph.nodes)
        seen.extend(tasks)

    model = Unusual()
    torch.manual_seed(0)
    torch._dynamo.reset()
    run_step(model, RegionPass(act), lengths=(10,))
    operations = {o for _, task in seen for o in task.operations}
    assert any("rand" in n for n in names) and any("accumulate" in n or "index_put" in n for n in names)
    assert {"var_mean", "tanh"} <= operations
    assert not any(word in o for o in operations for word in ("rand", "put", "copy_", "seed", "accumulate"))
