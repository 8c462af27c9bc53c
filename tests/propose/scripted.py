"""Ten-line parts for tests of models: engines that say what they are told, a shared state, a request."""

from __future__ import annotations

import random
from collections.abc import Callable

import drawing
import edit_seeds

from kernelsearch.core.types import Evidence, Outcome, Proposal, ProposalKind, Trial, Verdict, Word
from kernelsearch.kernel.targets import target_by_name
from kernelsearch.propose.contract import Request
from kernelsearch.propose.engines import Ask, Engine, Failure, Reply, Sample
from kernelsearch.propose.models.model import ModelProposer, Models, ModelSettings
from kernelsearch.propose.models.prompt import PromptDevice
from kernelsearch.verify import gate
from made_outcomes import accept


class Scripted(Engine):
    """An engine that answers by a function of the ask, and remembers what it was asked."""

    name, label = "scripted:", "scripted"

    def __init__(self, answer: Callable[[Ask], Reply | Failure | str]) -> None:
        self.answer, self.asks = answer, []

    def complete(self, ask: Ask) -> Reply | Failure:
        self.asks.append(ask)
        said = self.answer(ask)
        return Reply((Sample(said),), 100, 10, 0, 0.5) if isinstance(said, str) else said

    def close(self) -> None:
        self.closed = True


def sampling(ask: Ask) -> Reply:
    """n random answers of the ask's own grammar: a model of random weights, without the weights."""
    rng = random.Random(ask.seed)
    samples = tuple(Sample(drawing.draw(ask.grammar.ebnf, rng, depth=99, most=1), tokens=20) for _ in range(ask.n))
    return Reply(samples, 100, 20 * ask.n, 0, 0.5)


def shared(say: Callable[[str], None] = lambda text: None, **fields: object) -> Models:
    return Models(gate.check, PromptDevice("h100", target_by_name("h100")), say=say, **fields)


def proposer(answer, models: Models | None = None, **settings: object) -> ModelProposer:
    engine = answer if isinstance(answer, Scripted) else Scripted(answer)
    return ModelProposer(engine, models or shared(), ModelSettings(**settings))


def request(name: str = "softmax", number: int = 1, **fields: object) -> Request:
    return Request(edit_seeds.seed(name), edit_seeds.task(name), number=number, **fields)


def trial(number: int, kernel: str, score: float | None, edit: str | None = None, action: str = "",
          word: Word = Word.COMPILE,
          reason: str = "it does not compile", parent: str = "p", **detail: object) -> Trial:  # fmt: skip
    """A finished trial; without a score it was refused with this word and reason."""
    proposal = Proposal(ProposalKind.REWRITE, (parent,)) if edit else Proposal(ProposalKind.SEED)
    if score is None:
        outcome = Outcome(Verdict(word, "compile", reason, detail=detail), seconds=1.0)
    else:
        outcome = accept(10.0 * score, evidence=Evidence.ESTIMATED, seconds=1.0)
    return Trial(number, proposal, kernel, {}, outcome, score, edit, action)
