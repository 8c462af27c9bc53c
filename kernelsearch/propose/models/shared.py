"""Settings of models' calls, and the parts that all models of one run share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kernelsearch.core.types import Hint, TaskFacts
from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.edits import EDITS as TYPED_EDITS
from kernelsearch.propose.edits import NotApplicable
from kernelsearch.propose.grammar import Grammar, NoGrammar, build_grammar
from kernelsearch.propose.history import History
from kernelsearch.propose.models import prompt
from kernelsearch.propose.models.answers import Gate
from kernelsearch.propose.models.lessons import Lesson, choose_lessons, facts_of_task, read_shipped
from kernelsearch.propose.models.plan import IdeaPlan
from kernelsearch.propose.models.roles import Adviser
from kernelsearch.propose.models.spending import Ledger


@dataclass(frozen=True)
class ModelSettings:
    """Settings of a model's calls: answers per call, most tokens of an answer and of the page, temperature, rounds.

    rounds is the number of answers of one conversation.
    """

    samples: int = 4
    max_tokens: int = 512
    page_tokens: int = 6000
    temperature: float = 0.8
    rounds: int = 3


EDITS = ModelSettings()
WHOLE_KERNELS = ModelSettings(samples=1, max_tokens=16_000, page_tokens=24_000, temperature=1.0, rounds=4)
"""Settings of calls by form."""


@dataclass
class Models:
    """The parts that all models of one run share; `say` takes sentences for the user.

    plan is the task's; lessons are those of other tasks; planner and critic are engines in these roles, if there are
    any (`roles.py`): else a writer does without, in its own answers.
    """

    gate: Gate
    device: prompt.PromptDevice
    ledger: Ledger = field(default_factory=Ledger)
    history: History = field(default_factory=History)
    say: Callable[[str], None] = lambda text: None
    grammars: dict[str, Grammar | NoGrammar] = field(default_factory=dict)
    plan: IdeaPlan = field(init=False)
    lessons: tuple[Lesson, ...] = field(default_factory=read_shipped)
    planner: Adviser | None = None
    critic: Adviser | None = None

    def __post_init__(self) -> None:
        self.plan = IdeaPlan(self.history)

    @property
    def advisers(self) -> list[Adviser]:
        return [one for one in (self.planner, self.critic) if one]

    def choose_lessons(self, task: TaskFacts, hints: Sequence[Hint]) -> tuple[str, ...]:
        """The lessons for a kernel with these hints, in lines."""
        where = self.device.name
        facts = facts_of_task(task, where, hints[0].bottleneck if hints else "")
        return tuple(one.describe(where) for one in choose_lessons(self.lessons, facts))

    def grammar(self, parent: Kernel, task: TaskFacts) -> Grammar | NoGrammar:
        """The cached grammar of a parent, with the typed edits that apply."""
        key = parent.digest
        if key not in self.grammars:
            variants = {e.name: e.apply(parent, task) for e in TYPED_EDITS}
            edits = {name: v for name, v in variants.items() if not isinstance(v, NotApplicable)}
            try:
                self.grammars[key] = build_grammar(parent, task, edits)
            except NoGrammar as none:
                self.grammars[key] = none
        return self.grammars[key]
