"""An opened task: what its launches become, which shapes share a binary, and what cannot be opened."""

from collections import defaultdict
from types import SimpleNamespace

import pytest

from kernelsearch.core.errors import TargetError, TaskError
from kernelsearch.core.types import Word
from kernelsearch.kernel.launch import LaunchError
from kernelsearch.kernel.source import Kernel
from kernelsearch.measure.timing.device import find_live_device
from kernelsearch.tasks import shipped
from kernelsearch.trial import bench as benches
from kernelsearch.trial.bench import FEW_COMPILERS, Bench, choose_target, versions
from kernelsearch.worker.messages import jobs
from kernelsearch.worker.processes.workers import WorkerHung


@pytest.fixture
def opened(borrowing):
    benches = []

    def opened(path, target="h100"):
        benches.append(Bench.open(path, target, compile_workers=1))
        return benches[-1]

    yield opened
    for bench in benches:
        bench.workplace.close()


def by_specialisation(bench):
    """The timed and test shapes' labels by the key of what is compiled for them."""
    groups = defaultdict(set)
    for shape in (*bench.facts.shapes, *bench.facts.test_shapes):
        for fact, bound in bench.bind_launches(bench.seed, bench.facts.config, (shape.key,)):
            (spec,) = bound.specialise_steps(fact)
            groups[spec].add((fact.args["n_cols"], fact.args["x_stride"]))
    return groups


@pytest.mark.parametrize("name", ["softmax", "softmax_wide"])
def test_unaligned_rows_never_share_a_binary_with_aligned_ones(opened, name):
    bench = opened(shipped.path(name))
    groups = by_specialisation(bench)
    widths = {cols for group in groups.values() for cols, _ in group}
    assert {257, 8192} <= widths if name == "softmax" else 50257 in widths
    for spec, group in groups.items():
        for cols, stride in group:
            assert ("n_cols" in spec.divisible) == (cols % 16 == 0)
            assert ("x_stride" in spec.divisible) == (stride % 16 == 0 and stride != 1)
            assert ("x_ptr" in spec.divisible) and ("y_ptr" in spec.divisible)
            assert (dict(spec.signature)["n_cols"] == "constexpr") == (cols == 1)
    if name == "softmax":
        shape = {s.label: s.key for s in bench.facts.shapes}
        odd, even = (next(k for label, k in shape.items() if f"cols={n}" in label) for n in (257, 1024))
        keys = []
        for key in (odd, even):
            ((fact, bound),) = bench.bind_launches(bench.seed, {"num_warps": 4}, (key,))
            (spec,) = bound.specialise_steps(fact)
            found, verdict = bench.build_binaries(bench.seed, ((spec, False),))
            assert verdict is None
            keys.append(found[jobs.spec_key(spec, False)])
        assert keys[0].identity != keys[1].identity
        assert set(keys[0].mix.loads) == {4} and set(keys[1].mix.loads) == {16}  # bytes a thread loads at once


def test_the_same_specialisation_is_built_once_and_refusals_are_remembered(opened):
    bench = opened(shipped.path("softmax"))
    ((fact, bound),) = bench.bind_launches(bench.seed, {"num_warps": 2}, ("timed:1",))
    spec = bound.specialise_steps(fact)[0]
    first, _ = bench.build_binaries(bench.seed, ((spec, False),))
    again, _ = bench.build_binaries(bench.seed, ((spec, False),))
    key = jobs.spec_key(spec, False)
    assert first[key] is again[key] and first[key].num_warps == 2
    broken = Kernel.parse(bench.facts.seed.replace("tl.exp(x)", "tl.exp(undefined)"))
    for _ in range(2):
        found, verdict = bench.build_binaries(broken, ((spec, False),))
        assert found == {} and verdict.word is Word.COMPILE and "undefined" in verdict.reason


def test_the_users_own_kernel_at_its_own_config_may_compile_for_longer_than_a_candidate(opened, monkeypatch):
    monkeypatch.setattr(benches, "COMPILE_LIMIT_S", 1e-4)
    bench = opened(shipped.path("softmax"))
    own = bench.facts.config
    ((fact, bound),) = bench.bind_launches(bench.seed, own, ("timed:1",))
    specs = tuple((spec, False) for spec in bound.specialise_steps(fact))
    found, verdict = bench.build_binaries(bench.seed, specs)
    assert found and verdict is None
    ((_, other),) = bench.bind_launches(bench.seed, {**own, "num_warps": own["num_warps"] * 2}, ("timed:1",))
    found, verdict = bench.build_binaries(bench.seed, tuple((s, False) for s in other.specialise_steps(fact)))
    assert verdict.word is Word.TIMEOUT
    candidate = Kernel.parse(bench.facts.seed.replace("tl.exp(x)", "tl.exp(x + 0.0)"))
    assert candidate.digest != bench.seed.digest
    found, verdict = bench.build_binaries(candidate, specs)
    assert verdict.word is Word.TIMEOUT and "0.0001 s" in verdict.reason


def test_with_few_compilers_a_refusal_ends_the_builds(opened, monkeypatch):
    """One that does not end costs its limit once, not once for each of its specialisations."""
    bench, asked = opened(shipped.path("softmax")), []

    def hang(job, limit_s):
        asked.append(job)
        raise WorkerHung()

    monkeypatch.setattr(bench, "compilers", SimpleNamespace(size=2, ask=hang))
    launches = [bench.bind_launches(bench.seed, {"num_warps": w}, ("timed:0",))[0] for w in (1, 2, 16)]
    specs = tuple((bound.specialise_steps(fact)[0], False) for fact, bound in launches)
    candidate = Kernel.parse(bench.facts.seed.replace("tl.exp(x)", "tl.exp(x + 0.0)"))
    assert len(set(specs)) == 3 and bench.build_binaries(candidate, specs)[1].word is Word.TIMEOUT
    assert len(asked) == 1


def test_a_rewrite_with_a_grid_of_its_own_and_one_that_cannot_be_bound(opened):
    bench = opened(shipped.path("softmax"))
    kernel = bench.seed.with_changes(grid={"softmax_kernel": "(num_sms * 2,)"})
    ((_, bound),) = bench.bind_launches(kernel, {}, ("timed:0",))
    assert bound.plan.steps[0].grid == (264, 1, 1) and not bound.of_seed
    with pytest.raises(LaunchError, match="not an argument"):
        bench.bind_launches(bench.seed.with_changes(grid={"softmax_kernel": "(rows,)"}), {}, ("timed:0",))


def test_the_run_worker_gets_no_text_of_a_candidate(opened):
    bench = opened(shipped.path("softmax"))
    candidate = bench.candidate(bench.seed, {}, code=False)
    for kernel in (candidate.kernel, candidate.seed):
        assert all(f.text == "" for f in kernel.functions) and kernel.constants == ()
    assert "tl.load" in bench.candidate(bench.seed, {}, code=True).kernel.functions[0].text


def test_what_cannot_be_opened(borrowing, tmp_path):
    with pytest.raises(TaskError, match="no such file"):
        Bench.open(tmp_path / "absent.py")
    with pytest.raises(TargetError, match="unknown target"):
        Bench.open(shipped.path("softmax"), "h1000")
    (tmp_path / "broken.py").write_text("def (:\n")
    with pytest.raises(TaskError):
        Bench.open(tmp_path / "broken.py", "h100")


def test_targets_by_name_and_by_device():
    target, device = choose_target("a100")
    assert target.capability == 80
    if find_live_device() is None:
        assert device is None and choose_target("auto")[0].name == "h100"
    assert set(versions()) == {"kernelsearch", "triton", "torch", "numpy"}


@pytest.mark.parametrize("compilers", [FEW_COMPILERS, FEW_COMPILERS + 1])
def test_a_build_begun_ahead_is_the_one_that_is_asked_for_later_and_takes_nobodys_place(borrowing, compilers):
    with Bench.open(shipped.path("softmax"), "h100", compile_workers=compilers) as bench:
        ((fact, bound),) = bench.bind_launches(bench.seed, {"num_warps": 2}, ("timed:1",))
        specs = tuple((s, False) for s in bound.specialise_steps(fact))
        bench.begin_builds(bench.seed, specs)
        begun = dict(bench._built)
        assert len(begun) == (1 if compilers > FEW_COMPILERS else 0)
        found, verdict = bench.build_binaries(bench.seed, specs)
        assert verdict is None and all(future.result() in found.values() for future in begun.values())


GATED = """
import torch, triton, triton.language as tl

@triton.jit
def gate_kernel(g_ptr, x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    g, x = tl.load(g_ptr + i, mask=i < n, other=0.0), tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.store(y_ptr + i, tl.exp(g) * x, mask=i < n)

def gate(g, x):
    y = torch.empty_like(x)
    gate_kernel[(triton.cdiv(x.numel(), 256),)](g, x, y, x.numel(), BLOCK=256)
    return y

def reference(g, x): return g.exp() * x
def get_inputs(n=1000): return [-16 * torch.rand(n), torch.randn(n)]
DOMAIN = {"g": "LIMIT"}
"""


@pytest.mark.parametrize("limit", ["fixed", "positive"])
def test_the_cases_of_full_depth_keep_to_the_domain(opened, tmp_path, limit):
    path = tmp_path / "gated.py"
    path.write_text(GATED.replace("LIMIT", limit))
    probes = [case.probe for case in opened(path).cases("full") if case.probe is not None]
    moved = [value for position, _, value in probes if position == 0]
    assert len(probes) > len(moved) and bool(moved) == (limit == "positive") and all(value > 0 for value in moved)
