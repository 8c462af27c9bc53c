"""Every shipped task: its facts, its seed against the gate, its numbers without a GPU, its code for sm_90."""

import pytest
import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kernelsearch.core.errors import TaskError
from kernelsearch.core.types import DtypeFact
from kernelsearch.kernel.launch import make_plan, specialise
from kernelsearch.kernel.source import Kernel
from kernelsearch.kernel.targets import target_by_name
from kernelsearch.tasks import shipped
from kernelsearch.tasks.facts import describe
from kernelsearch.tasks.load import load
from kernelsearch.tasks.reach import list_decorators
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.bound_candidate import BoundCandidate
from kernelsearch.trial.without_gpu import Evaluating
from kernelsearch.verify import gate
from kernelsearch.verify.widest import find_widest, run_reference
from kernelsearch.worker.launcher import opening
from kernelsearch.worker.launcher import trace as tracing
from traces import trace_launches

NAMES = (
    "attention", "column_sum", "cross_entropy", "layernorm", "linear_gelu", "matmul", "rmsnorm", "softmax",
    "softmax_wide", "swiglu",
)  # fmt: skip
H100 = target_by_name("h100")


@pytest.fixture(scope="module")
def tasks():
    return {name: opening.open_task(shipped.path(name), H100) for name in NAMES}


def test_the_list_is_complete():
    assert shipped.names() == NAMES
    assert "def softmax_kernel" in shipped.text("softmax")
    with pytest.raises(TaskError, match="there are attention, column_sum"):
        shipped.text("softmaxx")


@pytest.mark.parametrize("name", NAMES)
def test_facts(tasks, name):
    facts = describe(tasks[name], trace_launches, tracing.describe_outputs)
    assert facts.form == "native" and facts.notes == ()
    assert len(facts.sites) == 1
    assert set(facts.config) <= set(facts.space)
    assert all(facts.config[n] in facts.space[n] for n in facts.config)
    assert all(s.bytes_moved > 0 and s.flops > 0 for s in facts.shapes)
    seed = Kernel.parse(facts.seed)
    assert seed.entries == facts.sites
    assert gate.check(facts.seed).accepted, gate.check(facts.seed).reason


@pytest.mark.parametrize("name", NAMES)
def test_seed_compiles_for_sm_90_at_its_first_timed_shape(tasks, name):
    task = tasks[name]
    facts = describe(task, trace_launches)
    launches = tracing.run_launcher(task, "timed:0", H100).launches
    fact, kernel = tracing.as_launch_fact(launches[0]), Kernel.parse(facts.seed)
    made = make_plan(kernel, facts.sites, facts.config, fact, launches[0].resolve_grid, H100.num_sms)
    step = made.steps[0]
    spec = specialise(step, fact, made.scratch)
    function = list_decorators(task.kernels()[fact.site])[-1]
    constants = {n: getattr(tl, v.name) if isinstance(v, DtypeFact) else v for n, v in spec.constexprs}
    order = [n for n, _ in spec.signature]
    signature = dict(sorted(spec.signature, key=lambda item: function.arg_names.index(item[0])))
    attrs = {(function.arg_names.index(n),): [["tt.divisibility", 16]] for n in order if n in spec.divisible}
    source = ASTSource(function, signature, constants, attrs)
    binary = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=dict(step.options))
    assert len(binary.asm["cubin"]) > 1000
    assert binary.metadata.shared <= H100.shared_per_program
    assert all(g > 0 for g in step.grid)


@pytest.mark.parametrize("name", NAMES)
def test_its_exact_answer_is_in_float64(name):
    task = load(shipped.path(name))
    for key, _ in task.test_shapes:
        case = task.build(key, seed=1)
        eager = run_reference(case.reference, case.inputs)
        widest, answers = find_widest(case.reference64, case.inputs, (), [y.shape for y in eager])
        assert not widest.note and all(y.dtype is torch.float64 for y in answers)


@pytest.mark.parametrize("name", NAMES)
def test_its_seed_is_right(name, borrowing):
    with Bench.open(shipped.path(name), "h100") as bench:
        verdict = Evaluating(BoundCandidate.of_seed(bench), 20.0).run(bench.cases("screen"))
        assert verdict.accepted and verdict.error_ratio <= 1
