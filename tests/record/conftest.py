"""A task, a seed kernel and trials of it, small enough to write by hand."""

from types import SimpleNamespace

import pytest

import simulated
from kernelsearch.core.types import (
    Evidence,
    Hint,
    Measurement,
    Outcome,
    Proposal,
    ProposalKind,
    Referee,
    ShapeTime,
    Trial,
    Verdict,
    Word,
)
from kernelsearch.kernel.source import Kernel
from kernelsearch.record.rows import RunFacts
from kernelsearch.record.store import Store


@pytest.fixture
def task():
    return simulated.task()


@pytest.fixture
def seed():
    return Kernel.parse(simulated.SEED_KERNEL)


@pytest.fixture
def store():
    with Store.open_in_memory() as store:
        yield store


@pytest.fixture
def facts():
    return RunFacts("evolve", "operators", 3, 4, 200, "h100", {"triton": "3.7.1"}, {"edits": ("a",), "shape": None})


def accepted(number, kernel, config, score, parents=(), edit=None, device="simulated", scale=100.0):
    first = ShapeTime("timed:0", scale * score, 0.5, 7, "abc", {"waves": 2})
    times = (first, ShapeTime("timed:1", 3 * scale * score))
    proposal = Proposal(ProposalKind.RETUNE, parents) if parents else Proposal(ProposalKind.SEED)
    referee = Referee("gpu", ("namespaces", "seccomp"))
    verdict = Verdict(Word.ACCEPT, "judge", depth="full", error_ratio=0.4, referee=referee)
    measurement = Measurement(Evidence.MEASURED, device, "search", times)
    hints = (Hint("memory", {"gbps": 1900.0, "waves": 1.5}, "load wider"), Hint("latency", {}, "more stages"))
    outcome = Outcome(verdict, measurement, hints, 0.25)
    return Trial(number, proposal, kernel.digest, config, outcome, score, edit, "why")


def rejected(number, kernel, config, word=Word.WRONG, parents=("x",), edit="edit_01"):
    proposal = Proposal(ProposalKind.REWRITE, parents, "edit_01", {"BLOCK": 128, "flag": None}, "random")
    detail = {"shape": "timed:0", "index": [1, 2]}
    verdict = Verdict(word, "judge", "off by 3", "screen", 12.5, Referee("interpreter"), detail)
    return Trial(number, proposal, kernel.digest, config, Outcome(verdict, seconds=0.5), None, edit, "because")


@pytest.fixture
def make():
    return SimpleNamespace(accepted=accepted, rejected=rejected)
