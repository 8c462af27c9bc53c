"""Edits give source that Triton compiles for sm_90, on a machine without a GPU: a sample over edits and seeds."""

from __future__ import annotations

import edit_seeds as seeds
import pytest
from test_edits_right import DIRECTED, chained

from kernelsearch.propose.edits import EDITS


def sample():
    """One seed for each edit that applies somewhere, another one each time, and the directed chains."""
    for at, edit in enumerate(EDITS):
        for name in seeds.NAMES[at % len(seeds.NAMES) :] + seeds.NAMES[: at % len(seeds.NAMES)]:
            if rewrites := seeds.variants(edit.name, name):
                yield name, edit.name, rewrites[-1].kernel
                break
    for name, chains in DIRECTED.items():
        yield chained(name, chains[0])


@pytest.fixture(scope="module")
def compiled():
    plain = [("softmax", "seed", seeds.seed("softmax")), chained("softmax", "drop_mask")]
    cases = [*plain, *sample()]
    jobs = [{"task": n, "kernel": k.render(), "site": seeds.task(n).sites[0]} for n, _, k in cases]
    return list(zip(cases, seeds.ask("compiler.py", jobs), strict=True))


def test_samples_compile(compiled):
    failed = [f"{n} {e}: {a['why']}\n{k.render()}" for (n, e, k), a in compiled if not a["ok"]]
    assert not failed, failed[0]


def test_a_dropped_mask_is_gone_from_the_ptx(compiled):
    """`(cols < n) | EVEN` must fold: 8192 columns in a block of 8192 need no predicate."""
    (_, seed), (_, dropped) = compiled[:2]
    assert seed["masked"] > 0 and dropped["masked"] == 0
