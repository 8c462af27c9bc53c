"""Records of requests to models: the prompt, the answers with the stage that each reached, and the cost."""

from __future__ import annotations

from dataclasses import dataclass

from kernelsearch.core.types import content_digest


@dataclass(frozen=True)
class AnswerRecord:
    """One answer of a call: its text, how it ended, the stage that it reached, and the digest of its kernel."""

    text: str
    finish: str
    tokens: int
    stage: str
    reason: str = ""
    kernel: str = ""


@dataclass(frozen=True)
class ModelCall:
    """One request to a model.

    number is the search's ask that made the request; arm is who asked (`model:NAME`, `repair:NAME`); engine is its spec
    without secrets; idea is the id of the suggested change, action describes it in a sentence, ask is its kind:
    improve, rewrite, combine or repair. follows is the digest of the kernel, refused or accepted, that this request
    continues from; left_out says what did not fit on the page. failure and its kind say why there are no answers.
    Tokens count the prompt once; usd is 0 without a price. landed is the ask at which the answers were taken in (number
    by default); waited is how many seconds of the call the search stood still: few or none when the model was asked
    ahead.
    """

    number: int
    arm: str
    engine: str
    parent: str
    idea: str
    action: str
    system: str
    page: str
    grammar: str
    answers: tuple[AnswerRecord, ...] = ()
    tokens_in: int = 0
    tokens_cached: int = 0
    tokens_out: int = 0
    seconds: float = 0.0
    usd: float = 0.0
    failure: str = ""
    kind: str = ""
    follows: str = ""
    landed: int = -1
    waited: float = 0.0
    ask: str = ""
    left_out: str = ""

    def __post_init__(self) -> None:
        if self.landed < self.number:
            object.__setattr__(self, "landed", self.number)

    @property
    def prompt(self) -> str:
        return content_digest(self.system, self.page)
