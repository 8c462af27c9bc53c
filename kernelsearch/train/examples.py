"""Examples out of a database: pages as a search shows them, with the answers that gained and those that did not.

A page shows a parent with the config at which a child was first compared with it: a parent that was asked at several
has several pages. Of those with one config the first one stands for all. An answer is written in both forms, and read
back by the reader that judges models: one that does not give its kernel again is left out.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from kernelsearch.core.types import TaskFacts, Trial, config_key, is_whole_kernel
from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.bandit import NOTICED
from kernelsearch.propose.contract import Request
from kernelsearch.propose.engines.base import Engine
from kernelsearch.propose.grammar import Answer, Grammar, NoGrammar
from kernelsearch.propose.history import Entry, History
from kernelsearch.propose.models.answers import Form
from kernelsearch.propose.models.model import ModelProposer
from kernelsearch.propose.models.sections import TooLong
from kernelsearch.propose.models.shared import EDITS, WHOLE_KERNELS, Models
from kernelsearch.propose.proposers import MachineFacts
from kernelsearch.record.rows import Run
from kernelsearch.record.store import Store
from kernelsearch.verify import gate

EDIT, KERNEL = "edit", "kernel"
FORMS = (EDIT, KERNEL)
"""Forms of answers, as engines name them."""
OTHER_FORM = "an answer that this form cannot say"
NOT_FIRST = "a parent that was never accepted, or without a page"


@dataclass(frozen=True)
class Example:
    """One answer to one page.

    task_file and parent (a kernel file with its best config) say what was asked about. gain is the log of the parent's
    time over the answer's, each after the usual tuning; None for a refused one, whose verdict is reason, and for one
    so slow that its timing was broken off. author is the typed edit or the model; made and base are the digests of the
    answer's kernel and of the parent.
    """

    form: str
    family: str
    task: str
    task_file: str
    parent: str
    system: str
    page: str
    answer: str
    gain: float | None
    evidence: str
    device: str
    author: str
    reason: str
    base: str
    made: str

    @property
    def gained(self) -> bool:
        return self.gain is not None and self.gain >= NOTICED

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What makes two examples one: the same change of the same kernel of a task."""
        return self.form, self.task, self.base, self.made


@dataclass
class RunReader:
    """Reads one run's examples; left_out counts, by reason, what gives none; grammars are shared by runs of a task."""

    store: Store
    run: Run
    facts: TaskFacts
    place: MachineFacts
    left_out: Counter[str] = field(default_factory=Counter)
    grammars: dict[str, Grammar | NoGrammar] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.history = History()
        self.models = Models(gate.check, self.place, history=self.history, grammars=self.grammars)
        engine = Engine()
        engine.name = engine.label = "dataset"
        self.asked = {
            EDIT: ModelProposer(engine, self.models, EDITS),
            KERNEL: ModelProposer(engine, self.models, WHOLE_KERNELS, whole=True),
        }

    def read(self) -> Iterator[Example]:
        """Every answer of the run to every page, the refused ones too, in both forms where they can be said."""
        pages, asked_at = self._read_pages()
        calls = self.store.load_calls(self.run.id)
        said = {a.kernel: a.text for call in calls for a in call.answers if a.kernel}  # the models' own texts
        usual = self.history.usual_tuning()
        for entry in self.history.entries.values():
            above = self.history.get(entry.parent)
            if above is None:
                continue
            for form in FORMS:
                shown = pages.get((entry.parent, form, asked_at.get(entry.kernel.digest, "")))
                answer = self._say(form, above, entry, said) if shown else None
                if shown is None or answer is None:
                    self.left_out[OTHER_FORM if shown else NOT_FIRST] += 1
                    continue
                gain = self._gain(entry, above, usual) if entry.best else None
                yield self._describe(form, above, entry, shown, answer, gain)

    def _gain(self, entry: Entry, above: Entry, usual: float) -> float:
        """The gain that a search counts; its tuning counts as far as it is better than the parent's best, too."""
        earned = self.history.earned_gain(entry, usual)
        if is_whole_kernel(entry.edit) or entry.first is None or entry.inherited is None:
            return earned
        return min(earned, max(math.log(entry.inherited / entry.first), math.log(above.score / entry.score)))

    def _describe(
        self, form: str, above: Entry, entry: Entry, shown: tuple[str, str], answer: str, gain: float | None
    ) -> Example:
        measured = entry.best.outcome.measurement if entry.best else None
        page, parent = shown
        return Example(
            form, "", self.facts.name, self.facts.path, parent, self.asked[form].system, page, answer, gain,
            measured.evidence.value if measured else "", self.place.name, entry.edit,
            entry.refused.reason if entry.refused and not entry.best else "", above.kernel.digest, entry.kernel.digest,
        )  # fmt: skip

    def _read_pages(self) -> tuple[dict[tuple[str | None, str, str], tuple[str, str]], dict[str, str]]:
        """Pages and files of parents by digest, form and config, and by each child's digest the config it was asked at.

        Afterwards the history knows the whole run.
        """
        structures = self.store.load_structures(self.run.id)
        pages: dict[tuple[str | None, str, str], tuple[str, str]] = {}
        asked_at: dict[str, str] = {}
        at: dict[tuple[str | None, str], Trial] = {}
        for trial in self.store.load_trials(self.run.id):
            structure = structures[trial.kernel]
            above = self.history.get(structure.parent)
            if trial.kernel not in self.history.entries and above is not None and above.best is not None:
                shown = at.get((structure.parent, config_key(above.share(trial.config))), above.best)
                config = asked_at[trial.kernel] = config_key(shown.config)
                for form in FORMS:
                    if (structure.parent, form, config) not in pages:
                        page = self._write_page(form, above, shown, trial.number)
                        pages |= {(structure.parent, form, config): page} if page else {}
            if trial.accepted:
                at.setdefault((trial.kernel, config_key(trial.config)), trial)
            self.history.tell(trial, structure.kernel, structure.parent)
        return pages, asked_at

    def _write_page(self, form: str, above: Entry, shown: Trial, number: int) -> tuple[str, str] | None:
        request = Request(above.kernel, self.facts, hints=shown.outcome.hints, trial=shown, number=number)
        try:
            page = self.asked[form].compose_page(request, random.Random(f"{self.run.facts.seed}/{number}"))
        except (NoGrammar, TooLong):
            return None
        return page, _as_file(above.kernel, shown)

    def _say(self, form: str, above: Entry, entry: Entry, said: dict[str, str]) -> str | None:
        """The entry as an answer in this form; None where the form's reader makes another kernel of it."""
        read = self.asked[form].make_form(above.kernel, self.facts)
        if isinstance(read, NoGrammar):
            return None
        texts = [said[entry.kernel.digest]] if entry.kernel.digest in said else []
        if form == KERNEL:
            texts.append(f"```python\n{_as_file(entry.kernel, entry.best or entry.begun)}```\n")
        texts += [
            f"EDIT {name} {number}\nEND"
            for name, variants in dict(read.edits).items()
            for number, variant in enumerate(variants, 1)
            if variant.kernel.digest == entry.kernel.digest
        ]
        return next((t for t in texts if _makes(read, t, entry.kernel.digest)), None)


def _makes(form: Form, text: str, digest: str) -> bool:
    answer = form.apply(text)
    return isinstance(answer, Answer) and answer.kernel.digest == digest


def _as_file(kernel: Kernel, trial: Trial | None) -> str:
    """The kernel as a file with the config of a trial."""
    return kernel.with_changes(config={**kernel.config, **(trial.config if trial else {})}).render()


# ---------------------------------------------------------------- which of them are kept


def keep_one_each(examples: list[Example]) -> list[Example]:
    """Each change of each kernel once: the measured one before the estimated one, then the later one."""
    kept: dict[tuple[str, ...], Example] = {}
    for example in examples:
        known = kept.get(example.key)
        if known is None or (known.evidence in ("", "estimated")) >= (example.evidence in ("", "estimated")):
            kept[example.key] = example
    return list(kept.values())


# ---------------------------------------------------------------- families of tasks


def name_families(kernels: dict[str, set[str]], given: dict[str, str], same: Callable[[str], str]) -> dict[str, str]:
    """The family of each task by its name, from the digests of its kernels; same makes a family of a task's name.

    Tasks that share a kernel are one family, whatever they are called: its name is the first of theirs.
    """
    family = {task: given.get(task) or same(task) for task in kernels}
    owner: dict[str, str] = {}
    for task in sorted(kernels):
        for digest in kernels[task]:
            first = family[owner.setdefault(digest, task)]
            if first != family[task]:
                low, high = sorted((first, family[task]))
                family = {t: low if f == high else f for t, f in family.items()}
    return family
