"""No name that only the code knows stands in what a person or a model reads of a verdict."""

import math
import re
from types import SimpleNamespace

import pytest

from kernelsearch.core.errors import KernelsearchError, TaskError
from kernelsearch.core.types import Outcome, Proposal, ProposalKind, Trial, Verdict, Word
from kernelsearch.propose.models.repair import report_verdict
from kernelsearch.search.history import explain_wrong_seed
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.coverage import CLAIMS, format_coverage
from kernelsearch.trial.referee import explain
from kernelsearch.verify.cures import name_cures
from kernelsearch.verify.regime_words import WORDS
from kernelsearch.worker.messages.jobs import JudgedCase
from kernelsearch.worker.processes.workers import WorkerHung


@pytest.mark.parametrize("regime", WORDS)
def test_a_kind_of_values_is_said_in_words_wherever_a_person_or_a_model_reads(regime):
    detail = {
        "shape": "test:0",
        "label": "n=3",
        "regime": regime,
        "index": [0],
        "expected": 1,
        "got": 2,
        "inputs": ["x"],
    }
    verdict = Verdict(Word.WRONG, "judge", "not the exact answer", error_ratio=math.inf, detail=detail)
    seed = Trial(0, Proposal(ProposalKind.SEED), "k", {}, Outcome(verdict), None)
    task = SimpleNamespace(name="t", shapes=(), test_shapes=())
    said = [explain(verdict), explain_wrong_seed(task, seed), report_verdict(verdict), *name_cures(verdict, own=True)]
    judged = {"shapes": ["n=3"], "timed": [], "regimes": [regime], "moved elements": 0, "rows apart": False, "made": []}
    said.append(
        format_coverage(Verdict(Word.ACCEPT, "judge", detail={"judged": {**judged, "few programs": []}, CLAIMS: {}}))
    )
    for text in said:
        assert WORDS[regime] in text and not re.search(rf"['(]{regime}[')]|: {regime}$", text, re.MULTILINE), text


def test_right_answers_that_do_not_come_name_the_shapes_and_what_to_do():
    """It was "the judge worker failed: no answer within 300 s"."""

    class Judge:
        def ask(self, job, timeout):
            raise WorkerHung(f"no answer within {timeout:g} s")

    shape = SimpleNamespace(key="test:0", label="rows=490")
    facts = SimpleNamespace(name="gather", test_shapes=(shape,), shapes=())
    bench = SimpleNamespace(judge=Judge(), facts=facts, labels={"odd:0": "rows=461"})
    for cases, where in (((), "rows=490"), ((JudgedCase("odd:0", "randn", 1),), "rows=461")):
        with pytest.raises(TaskError) as raised:
            Bench.ask_judge(bench, None, cases)
        said = str(raised.value)
        assert said.startswith(
            f"gather: its right answers at {where} took more than 300 s: the reference is slow there"
        )
        assert "give smaller TEST_SHAPES" in said and "\n" not in said


def test_what_is_no_verdict_is_refused_in_one_line():
    with pytest.raises(
        KernelsearchError, match="takes a verdict, .* not a str: what a call of an exported package runs"
    ):
        explain("gelu")
