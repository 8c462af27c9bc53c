"""What a package covers is printed, and a call outside of it warns once and says what would cure it."""

import inspect
import json
import warnings
from importlib import import_module

import pytest
import torch
from click.testing import CliRunner
from gated_record import CONFIG, H100, SPLIT, imported, write_seed_run
from test_export_package import fake, gpu

from kernelsearch.cli.export import _describe
from kernelsearch.cli.export import export as command
from kernelsearch.core.formats import BETWEEN, RANGES, list_spans, make_claims, spell_values
from kernelsearch.core.types import Evidence, TensorFact
from kernelsearch.export.examine import Input, list_ties
from kernelsearch.export.function_form import write_verified
from kernelsearch.kernel.source import Kernel


@pytest.fixture
def silent(package):
    """(The package, its task) with nothing warned of so far."""
    task = package[1]._dispatch.TASKS["gated_sum"]
    task.warned.clear()
    return package[1], task


def warned(task, choice, times=1):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(times):
            task.refuse(True, choice.reason)
    return [str(w.message) for w in caught]


OUTSIDE = {
    "size 300 of x's axis 0 is outside of the judged sizes, 1 to 256; add such a shape to TEST_SHAPES": (
        fake(300, 60), fake(60, 300), True),
    "x's layout is axes 1 0 (strides (1, 100)), judged were contiguous; pass x.contiguous()": (
        fake(100, 60, stride=(1, 100)), fake(60, 100), True),
    "dtypes (bfloat16, float32, None) were not judged, only (float32, float32, None); cast": (
        fake(100, 60, dtype=torch.bfloat16), fake(60, 100), True),
    "sizes 60 of x's axis 1 and 61 of gate's axis 0 differ, in all judged shapes they were equal; add such a shape": (
        fake(100, 60), fake(61, 100), True),
    "twice=False was not judged, only True; add": (fake(100, 60), fake(60, 100), False),
}  # fmt: skip


@pytest.mark.parametrize("said", OUTSIDE)
def test_a_call_outside_of_what_was_judged_warns_once_and_names_the_cure(silent, said):
    package, task = silent
    choice = gpu(package._dispatch, *OUTSIDE[said])
    (message,) = warned(task, choice, times=3)
    assert message.startswith(f"gated_sum runs its reference, plain torch: {said}"), message
    assert warned(task, choice) == []


def test_sizes_that_differ_warn_once_but_another_reason_warns_again(silent):
    package, task = silent
    sizes = [gpu(package._dispatch, fake(n, 60), fake(60, n), True) for n in (300, 301, 302)]
    assert [len(warned(task, choice)) for choice in sizes] == [1, 0, 0]
    assert len(warned(task, gpu(package._dispatch, fake(9, 5, dtype=torch.half), fake(5, 9), True))) == 1


def test_ordinary_compiled_and_differentiated_calls_warn(silent):
    package, task = silent
    x, g = torch.randn(9, 5), torch.randn(5, 9)
    with pytest.warns(package.FallbackWarning, match="nothing was verified on cpu; move") as caught:
        package.gated_sum(x, g, True)
        package.gated_sum(x, g, True)
    assert len(caught) == 1 and caught[0].filename == __file__
    with pytest.warns(package.FallbackWarning, match="a gradient is needed; call it under torch.no_grad()"):
        package.gated_sum(x.requires_grad_(), g, True)
    task.warned.clear()
    compiled = torch.compile(lambda *a: package.gated_sum(*a), fullgraph=True, backend="aot_eager")
    with torch.no_grad(), pytest.warns(package.FallbackWarning, match="nothing was verified on cpu"):
        compiled(x, g, True)
    torch._dynamo.reset()
    torch.compile(lambda *a: package.gated_sum(*a), fullgraph=True, backend="aot_eager")(x, g, True)


def test_what_is_refused_does_not_warn(silent):
    package, _ = silent
    with warnings.catch_warnings(), torch.no_grad(), pytest.raises(package.NotVerified):
        warnings.simplefilter("error")
        package.gated_sum(torch.randn(9, 5), torch.randn(5, 9), True, fallback=False)


def test_sizes_that_were_equal_in_all_judged_shapes_are_tied():
    """Not those of one value, which the ranges hold already, nor those that differ anywhere, if only in one shape."""

    def judged(name, *shapes):
        return Input(name, tuple(s and TensorFact("float32", s, (1,) * len(s)) for s in shapes))

    x = judged("x", (4, 64, 64), (4, 32, 32), (4, 5, 5))
    assert list_ties([x]) == (((0, 1), (0, 2)),)
    assert list_ties([judged("x", (4, 64, 64), (4, 32, 31))]) == ()
    y = judged("y", (64,), (32,), (4,))
    assert list_ties([x, y]) == (((0, 1), (0, 2)),)
    absent = judged("y", (64,), None, (5,))
    assert list_ties([x, absent]) == (((0, 1), (0, 2)), ((0, 1), (1, 0)))
    assert list_ties([absent, judged("z", None, (32,), None)]) == ()  # never seen together


def test_gaps_that_were_alike_at_all_judged_shapes_are_tied(silent):
    """A kernel may have them as constants; one that was judged with several may not."""

    def explain(value, *judged):
        facts = tuple(TensorFact("float32", shape, stride) for shape, stride in judged)
        fields = write_verified((Input("x", facts),), "x.py", RANGES)
        return silent[0]._dispatch.Verified(**{n: eval(code) for n, code in fields.items()}).explain_gap("x", (value,))

    halves = ((4, 64), (128, 1)), ((5, 30), (60, 1))
    assert explain(fake(4, 50, stride=(100, 1)), *halves) == ""
    for stride in (150, 101, 64):
        said = explain(fake(4, 50, stride=(stride, 1)), *halves)
        assert said == f"axis 1 of x had room for 2.0 times its size at all judged shapes (strides ({stride}, 1))"
    more = ((4, 64), (74, 1)), ((5, 30), (40, 1))
    assert not explain(fake(4, 50, stride=(60, 1)), *more) and "10.0 elements more" in explain(
        fake(4, 50, stride=(100, 1)), *more
    )
    assert not explain(fake(4, 50, stride=(77, 1)), *halves, *more)
    apart = ((4, 64), (128, 2)), ((5, 30), (60, 2))
    assert not explain(fake(4, 50, stride=(100, 2)), *apart)
    assert "neighbours 2 apart" in explain(fake(4, 50, stride=(150, 3)), *apart)


def test_a_number_runs_in_the_range_that_its_verdict_judged(silent):
    facts = TensorFact("float32", (4, 64), (64, 1)), TensorFact("float32", (9, 30), (30, 1))
    given = Input("x", facts), Input("eps", (1e-5, 1e-5)), Input("causal", (False, False)), Input("k", (2, 8))
    claims = make_claims([("eps", 4e-5), ("eps", 2.5e-6), ("eps", 7e-6), ("causal", True), ("causal", False)])

    def explain(claims, *values):
        fields = write_verified(given, "x.py", claims=json.loads(json.dumps(claims)))
        verified = silent[0]._dispatch.Verified(**{n: eval(code) for n, code in fields.items()})
        return verified.explain_gap(("x", "eps", "causal", "k"), values)

    full = {**claims, BETWEEN: [True]}
    x, own = fake(5, 50), fake(4, 64)
    for values in ((1e-5, False, 2), (2.5e-6, True, 8), (3.3e-5, False, 8)):
        assert explain(full, x, *values) == ""
    for values, said in (
        ((5e-5, False, 2), "eps=5e-05 was not judged, only 2.5e-06 to 4e-05"),
        ((0, False, 2), "eps=0 was not judged, only 2.5e-06 to 4e-05"),
        ((float("nan"), False, 2), "eps=nan was not judged, only 2.5e-06 to 4e-05"),
        ((1e-5, 1, 2), "causal=1 was not judged, only False, True"), ((1e-5, True, 5), "k=5 was not judged, only 2, 8"),
    ):  # fmt: skip
        assert explain(full, x, *values) == said
    assert explain({}, own, 1e-5, False, 2) == ""  # of an older record, or a verdict at screen
    assert "eps=2e-05 was not judged, only 1e-05" in explain({}, own, 2e-5, False, 2)
    assert explain(claims, own, 2e-5, True, 2) == ""
    assert "size 5 of x's axis 0 is outside of the judged sizes, 4 or 9" in explain(claims, x, 1e-5, False, 2)


def test_neighbours_are_one_range_and_a_single_size_is_said_once():
    assert list_spans((2, 1, 7, 8, 9, 20), {}) == ((1, 2), (7, 9), (20, 20))
    assert list_spans((2, 1, 20), {BETWEEN: [True]}) == ((1, 20),)
    assert spell_values(list_spans((2, 1, 20), {}), "..") == "1..2 or 20"


def test_what_was_not_judged_between_is_said_and_runs_no_kernel_of_the_table(exported, examined, tmp_path):
    """A verdict of `screen` alone claims the sizes of the shapes; one that is right in part those that are known."""
    split = (Kernel.parse(SPLIT), CONFIG, (5.0, 5.0))
    wrong = [{"sizes": f"rows={n}", "how": "is wrong", "reason": "3 of 9 elements"} for n in (7, 9)]
    said_wrong = "the task's own kernel is wrong at rows=7 and 1 other size (rows=9): 3 of 9 elements"
    cases = ("screened", {}, (), "they were not judged"), ("partly", {BETWEEN: [False]}, wrong, said_wrong)
    for name, claims, failed, why in cases:
        path = tmp_path / f"{name}.db"
        write_seed_run(path, examined.facts, (10.0, 10.0), Evidence.ESTIMATED, "h100", [split], claims, failed=failed)
        done = exported(name=name, dbs=(str(path),), evidence=Evidence.ESTIMATED)
        said, readme = "\n".join(_describe(done.parts[0])), (done.out / "README.md").read_text()
        for line in ("x: float32, 1 or 33 or 64 or 256 x 1 or 17 or 64 or 128, contiguous",
                     f"sizes between these: none, as {why}"):  # fmt: skip
            name_, _, judged = line.partition(": ")
            assert line in said and f"- `gated_sum`: `{name_}` {judged}\n" in readme, (said, readme)
        dispatch = imported(done.out, name)._dispatch
        evidence = json.loads(next(done.out.rglob("evidence.json")).read_text())
        assert ("rows=9" in str(evidence)) is bool(failed)
        assert gpu(dispatch, fake(64, 128), fake(128, 64), True).entry is not None
        between = gpu(dispatch, fake(100, 60), fake(60, 100), True)
        assert between.reason == "size 100 of x's axis 0 is outside of the judged sizes, 1 or 33 or 64 or 256"


def test_a_layout_that_was_judged_with_sizes_of_one_is_not_that_of_others(silent):
    """A transposed tensor with one row looks contiguous: a kernel for it is not one for contiguous tensors."""
    facts = TensorFact("float32", (4, 64), (1, 4)), TensorFact("float32", (1, 32), (1, 1))
    fields = write_verified((Input("x", facts),), "x.py", RANGES)
    verified = silent[0]._dispatch.Verified(**{n: eval(code) for n, code in fields.items()})
    assert not verified.explain_gap("x", (fake(3, 40, stride=(1, 3)),))
    assert not verified.explain_gap("x", (fake(1, 40),))
    assert "layout is contiguous (strides (40, 1)), judged were axes 1 0" in verified.explain_gap("x", (fake(3, 40),))


RANGE = ("x: float32, 1..256 x 1..128, contiguous", "gate: float32, 1..128 x 1..256, contiguous", "twice: True",
         "equal sizes: x axis 1 = gate axis 0, x axis 0 = gate axis 1")  # fmt: skip


@pytest.mark.slow
def test_the_covered_range_is_printed_at_export_and_in_the_readme(package, confirmed_db, tmp_path):
    arguments = f"--task gated_sum --out {tmp_path / 'out'} --name ranged-sum --db {confirmed_db}".split()
    done = CliRunner().invoke(command, arguments)
    assert done.exit_code == 0, done.output
    readme = (package[0].out / "README.md").read_text()
    for line in RANGE:
        name, _, judged = line.partition(": ")
        assert line in done.output and f"- `gated_sum`: `{name}` {judged}\n" in readme, done.output
    assert f"on {H100}" in done.output and "every other call runs the reference in plain torch" in done.output
    assert "a `FallbackWarning` says once why" in readme
    assert import_module("fast_gated").FallbackWarning.__mro__[1] is UserWarning


def test_a_package_keeps_the_users_signature_and_runs_a_kernel_for_the_judged_defaults_alone(silent, monkeypatch):
    package, task = silent
    given = inspect.signature(package.gated_sum).parameters.values()
    assert [(p.name, p.default) for p in given if p.kind is p.POSITIONAL_OR_KEYWORD] == [
        ("x", inspect.Parameter.empty), ("gate", inspect.Parameter.empty), ("twice", False), ("bias", None),
    ]  # fmt: skip
    by_name = [(p.name, p.default) for p in given if p.kind is p.KEYWORD_ONLY]
    assert by_name == [("shift", 1.5), ("limit", float("inf")), ("block", 64), ("fallback", True)]
    x, g, b = torch.randn(9, 5), torch.randn(5, 9), torch.randn(5)
    monkeypatch.setattr(task, "run_directly", lambda key, inputs, *rest: inputs)
    for same in ({}, {"shift": 1.5, "bias": None}, {"block": 64}):
        assert package.gated_sum(x, g, True, **same) == (x, g, True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert torch.equal(package.gated_sum(x, g, True, b, shift=2.0), ((x * g.t()).sum(0) + 2.0 + b) * 2)
        assert torch.equal(package.gated_sum(x, g, shift=1), (x * g.t()).sum(0) + 1)  # an int is not the float
    assert [str(w.message) for w in caught] == [
        "gated_sum runs its reference, plain torch: bias=a tensor was not judged, only None; let get_inputs of the "
        "task's file give it, search it and export again, or forbid it with fallback=False"
    ]
    with pytest.raises(package.NotVerified, match="shift=2.0 was not judged, only 1.5"):
        package.gated_sum(x, g, True, shift=2.0, fallback=False)
    with pytest.raises(package.NotVerified, match="block=32 was not judged, only 64; the reference does not take it"):
        package.gated_sum(x, g, True, shift=2.0, block=32)
    assert (
        package.explain("gated_sum", x, gate=g, twice=True, shift=2.0)
        == "reference: shift=2.0 was not judged, only 1.5"
    )
    compiled = torch.compile(package.gated_sum, fullgraph=True, backend="eager")
    assert torch.equal(compiled(x, g, True, shift=2.0), ((x * g.t()).sum(0) + 2.0) * 2)
