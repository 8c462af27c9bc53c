"""No name that only the code knows stands in what a person or a model reads of a verdict."""

import math
import re
from types import SimpleNamespace

import pytest

from kernelsearch.core.types import Outcome, Proposal, ProposalKind, Trial, Verdict, Word
from kernelsearch.propose.models.repair import report_verdict
from kernelsearch.search.history import explain_wrong_seed
from kernelsearch.trial.coverage import CLAIMS, format_coverage
from kernelsearch.trial.referee import explain
from kernelsearch.verify.cures import name_cures
from kernelsearch.verify.regime_words import WORDS


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
