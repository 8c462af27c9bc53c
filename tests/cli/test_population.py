"""`optimize --start`: a search begins with kernels of others, each judged and tuned, and goes on with them."""

import pytest
from good_task import one_line
from test_kernel_answers import RIGHT, WRONG
from test_propose import TASK

from kernelsearch.core.types import Outcome, Proposal, ProposalKind, Trial, Verdict, Word
from kernelsearch.record.store import Store
from kernelsearch.search.population import Population

SEED = TASK[TASK.index("@triton.jit") : TASK.index("def gate(")]
FILES = {
    "right.py": RIGHT,
    "wrong.py": WRONG,
    "host.py": RIGHT.replace("\n\n@triton", "import os\n\n@triton", 1),
    "seed.py": f'import triton\nimport triton.language as tl\n\nCONFIG = {{"BLOCK": 1024, "num_warps": 2}}\n\n\n{SEED}',
}


def stored(folder, run=1):
    with Store.open(folder / "kernelsearch.db") as store:
        return store.load_trials(run), list(store.load_structures(run).values())


@pytest.fixture
def starts(tmp_path):
    (tmp_path / "gate.py").write_text(TASK)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return [word for name in FILES for word in ("--start", name)]


@pytest.mark.slow
def test_each_is_judged_tuned_and_recorded_and_a_run_that_goes_on_has_them_from_its_record(run, starts, tmp_path):
    one_line(run("optimize", "gate.py", "--start", "nowhere.py", "--quiet"), "no such file: nowhere.py")
    done = run("optimize", "gate.py", *starts, "--trials", 20, "--window", 2)
    assert done.code == 0, done.err
    (host,) = (line for line in done.err.splitlines() if line.startswith("host.py is refused at gate: at `import os`"))
    assert host.endswith("the search begins without it")
    assert sum(line.startswith("kernel:wrong.py: reject-wrong at ") for line in done.err.splitlines()) == 1
    trials, structures = stored(tmp_path)
    right, wrong = (next(s.kernel.digest for s in structures if s.edit == f"kernel:{n}.py") for n in ("right", "wrong"))
    assert [t.kernel for t in trials[1:4]] == [right, wrong, trials[0].kernel] and len(trials) == 20
    assert dict(trials[1].config) == {"BLOCK": 512, "num_warps": 2} and trials[1].rationale == "One element a lane."
    assert dict(trials[3].config) == {"BLOCK": 1024, "num_warps": 2} and trials[3].proposal.config
    assert sum(t.kernel == right for t in trials) >= 3 and sum(t.kernel == wrong for t in trials) == 1
    assert "  the kernel in right.py, first in trial" in run("lineage", right[:8]).out

    for name in FILES:
        (tmp_path / name).unlink()
    done = run("optimize", "gate.py", *starts, "--trials", 22, "--resume")
    assert done.code == 0 and "host.py is refused at gate" in done.err, done.err
    again, _ = stored(tmp_path)
    assert len(again) == 22 and [(t.kernel, t.config) for t in again[:20]] == [(t.kernel, t.config) for t in trials]
    one_line(
        run("optimize", "gate.py", "--start", "right.py", "--trials", 23, "--resume", "--quiet"),
        "run 1 began with --start right.py, wrong.py, host.py, seed.py",
    )


def test_kernels_are_tuned_in_turn_once_they_are_accepted_and_as_long_as_they_have_configs():
    def trial(kernel, kind, right=True, number=0):
        verdict = Verdict(Word.ACCEPT, "") if right else Verdict(Word.WRONG, "values", "wrong")
        outcome = Outcome(verdict, object() if right else None)
        return Trial(
            number, Proposal(kind, ("s",) if kind is ProposalKind.REWRITE else (kernel[0],)), kernel[-1], {}, outcome
        )

    population, rewrite = Population(("a", "b", "c"), 4), ProposalKind.REWRITE
    assert population.ask(4) is None, "none is known yet"
    for kernel in "abc":
        population.tell(trial(kernel, rewrite, kernel != "b"))
    assert [population.ask(n).parents for n in range(5, 8)] == [("a",), ("c",), ("a",)]
    population.tell(trial("c", ProposalKind.RETUNE, number=6))
    population.tell(trial("c", ProposalKind.RETUNE, number=99))  # not asked for here
    population.tell(trial("as", ProposalKind.RETUNE))  # a has none left: the seed was tried in its place
    assert [(population.ask(n) or Proposal(ProposalKind.SEED)).parents for n in (8, 9)] == [("c",), ()]
