"""The plan of a task: a tree of ideas with why, an expected gain, what their tries gained, and so their state.

Ideas come from hints, from lines of models' answers (`IDEA: what | why | 1.3x`, `DROP ID: why`) and from agents. One
is refuted by right, tuned kernels of it that are no faster than their parents, never by a wrong one or by an opinion.
While estimates disagree, with each other or with what was measured, untried ideas are drawn alike; the better they
prove, the more they count. Steps of what gained are drawn first. All is a function of the stored calls and of the
finished trials, as the record's rows of earlier runs are.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kernelsearch.core.model_calls import ModelCall
from kernelsearch.core.types import Trial, content_digest, is_gain
from kernelsearch.kernel.literals import flatten_space
from kernelsearch.propose.grammar.answer import find_blocks, strip_thinking
from kernelsearch.propose.history import TUNED, History
from kernelsearch.propose.models.answers import SEEN
from kernelsearch.propose.models.ideas import IMPROVE, WHOLE, Idea, is_general
from kernelsearch.propose.models.repair import clean

REFUTED, OPEN, TRIED, GAINED = "refuted", "open", "tried", "gained"
"""States of an idea: tried is one of which no kernel was right and tuned yet."""
MOST, MOST_AN_ANSWER, SHOWN = 60, 6, 16
"""Ideas of a plan, of an answer, on the page."""
SAME = 0.8
"""The share of equal words from which two sentences are one idea."""
SHARPNESS, DOUBTED = 4.0, 0.25
"""How much a log gain counts in an idea's odds, and what a doubt leaves of them."""
WIDEST = math.log(4)
"""The largest log gain that is believed."""
AGREED = 0.1
"""The mean error of estimates (as a log) at which they count half."""

_IDEA = re.compile(r"^[ \t>*-]*IDEA(?: under \[?([0-9a-f]{4,8})\]?)?[ \t]*:[ \t]*(\S.*)$", re.MULTILINE)
_DROP = re.compile(r"^[ \t>*-]*DROP \[?([0-9a-f]{4,8})\]?[ \t]*:?[ \t]*(.*)$", re.MULTILINE)
_ID = re.compile(r"([0-9a-f]{8})?")
_GAIN = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*x?")


class IdeaTry(NamedTuple):
    """A kernel of an idea: its log gain over its parent (None: not right, for this reason), settled if it is tuned."""

    gain: float | None
    settled: bool
    evidence: str
    reason: str


class IdeaStanding(NamedTuple):
    """The state of an idea, its tries, the best log gain of the settled ones, on what evidence, the last refusal."""

    state: str
    tries: int
    gain: float | None = None
    evidence: str = ""
    reason: str = ""

    def __str__(self) -> str:
        tries = "1 try" if self.tries == 1 else f"{self.tries} tries"
        if self.gain is not None:
            return f"{self.state} ({math.exp(self.gain):.2f}x its parent, {self.evidence}, {tries})"
        refused = f", refused: {clean(self.reason, 60)}" if self.reason else ""
        return f"{self.state} ({tries}{refused})" if self.tries else self.state


@dataclass
class IdeaPlan:
    """Ideas by id, whatever the order in which they came; keep stores one that is new or whose doubt has changed.

    made has the idea of each kernel of this run (empty where none is known), failed counts answers that gave no kernel,
    past has tries of earlier runs, doubts say why an idea is taken for wrong, estimates are expected log gains by idea.
    """

    history: History = field(default_factory=History)
    ideas: dict[str, Idea] = field(default_factory=dict)
    made: dict[str, str] = field(default_factory=dict)
    failed: Counter[str] = field(default_factory=Counter)
    past: dict[str, list[IdeaTry]] = field(default_factory=dict)
    doubts: dict[str, str] = field(default_factory=dict)
    estimates: dict[str, set[float]] = field(default_factory=dict)
    keep: Callable[[dict[str, Any]], None] = lambda idea: None

    # ------------------------------------------------------------ what is in it

    def recall(self, ideas: Iterable[Mapping[str, Any]], tries: Iterable[Mapping[str, Any]]) -> None:
        """Takes the record's rows of earlier runs and of agents (`record/plan_rows.py`)."""
        for row in ideas:
            if all(_ID.fullmatch(row[name]) for name in ("id", "above")):  # else no kernelsearch wrote it
                self._take(
                    row["id"], make_idea(*(row[n] or "" for n in ("name", "why", "expected", "above", "author")))
                )
                self.doubts |= {row["id"]: clean(row["doubt"], 120)} if row["doubt"] else {}
        for row in tries:
            if id_ := row["idea"] if row["idea"] in self.ideas else self.find(row["rationale"]):
                self.past.setdefault(id_, []).append(_try_of(row))

    def find(self, text: str) -> str:
        """The id of the idea that a sentence is: its own, its only beginning, or that of nearly the same words."""
        near = [id_ for id_ in sorted(self.ideas) if len(text) >= 4 and id_.startswith(text)]
        if len(near) == 1 or (digest := content_digest(text)[:8]) in self.ideas:
            return near[0] if len(near) == 1 else digest
        words = _words_of(text)
        alike = ((id_, _words_of(idea.action)) for id_, idea in sorted(self.ideas.items()) if len(words) > 2)
        return next((id_ for id_, known in alike if _are_alike(words, known)), "")

    def add(self, idea: Idea) -> str:
        """Adds an idea, or one more estimate of one that is there and its end of doubt; returns its id, "" if full."""
        id_ = self.find(idea.action) or (idea.id if len(self.ideas) < MOST else "")
        new = id_ and id_ not in self.ideas
        if id_:
            self._take(id_, idea)
        if self.doubts.pop(id_, "") or new:
            self._keep(id_)
        return id_

    def _keep(self, id_: str) -> None:
        idea, doubt = self.ideas[id_], self.doubts.get(id_, "")
        plain = {name: getattr(idea, name) for name in ("why", "above", "expected", "author")}
        self.keep({"id": id_, "name": idea.action, "doubt": doubt, **plain})

    def _take(self, id_: str, idea: Idea) -> None:
        self.ideas.setdefault(id_, idea)
        self.estimates.setdefault(id_, set()).update([min(WIDEST, math.log(idea.expected))] if idea.expected else [])

    def note(self, call: ModelCall) -> int:
        """Takes note of a call: what was asked, which kernels came of it, its answers' edits; returns their count."""
        asked = self.find(call.action)
        if not asked and call.ask == IMPROVE and not is_general(call.action):
            asked = self.add(make_idea(call.action, author=call.arm))
        good = [a.kernel for a in call.answers if a.kernel]
        self.made |= {kernel: asked for kernel in good if kernel not in self.made}
        self.failed[asked] += bool(asked and call.answers and not good and any(a.stage != SEEN for a in call.answers))
        return sum(self.edit(answer.text, call.arm) for answer in call.answers)

    def name_kernel(self, trial: Trial) -> None:
        """Makes an idea of the sentence on a kernel that was asked for in general."""
        if self.made.get(trial.kernel) == "" and not is_general(trial.rationale):
            self.made[trial.kernel] = self.add(make_idea(trial.rationale, author=trial.edit or ""))

    def edit(self, text: str, author: str) -> int:
        """Makes the edits outside of a text's code and thinking; returns their count."""
        said = strip_thinking(text)
        for block in find_blocks(said):
            said = said.replace(block, "")
        edits = 0
        for found in list(_IDEA.finditer(said))[:MOST_AN_ANSWER]:
            what, why, gain = [*map(str.strip, found[2].split("|")), "", ""][:3]
            if len(_words_of(what)) > 1:
                edits += bool(self.add(make_idea(what, why, gain, self.find(found[1] or ""), author)))
        for found in list(_DROP.finditer(said))[:MOST_AN_ANSWER]:
            if id_ := self.find(found[1]):
                edits += 1
                self.doubts[id_] = clean(found[2], 120) or "no reason given"
                self._keep(id_)
        return edits

    # ------------------------------------------------------------ what became of it

    def judge(self, id_: str, number: int | None = None) -> IdeaStanding:
        """The standing of an idea at this ask of the search; None: after it."""
        tries = [*self.past.get(id_, ()), *self._tries_here(id_, number)]
        count, reasons = len(tries) + self.failed[id_], [t.reason for t in tries if t.reason]
        best = max((t for t in tries if t.gain is not None and t.settled), key=lambda t: t.gain or 0.0, default=None)
        if best is None or best.gain is None:
            return IdeaStanding(TRIED if count else OPEN, count, reason=reasons[-1] if reasons else "")
        return IdeaStanding(GAINED if is_gain(math.exp(best.gain)) else REFUTED, count, best.gain, best.evidence)

    def _tries_here(self, id_: str, number: int | None) -> Iterator[IdeaTry]:
        for digest in (kernel for kernel, idea in self.made.items() if idea == id_):
            entry = self.history.get(digest)
            if entry and entry.best and entry.best.outcome.measurement:
                settled, evidence = number is None or entry.is_tuned(number), entry.best.outcome.measurement.evidence
                yield IdeaTry(self.history.gain(entry), settled, evidence.value, "")
            elif entry:
                yield IdeaTry(None, False, "", entry.refused.reason if entry.refused else "")

    def expect(self, id_: str) -> float:
        """The expected log gain of an idea: the mean of its estimates; 0 without any."""
        known = self.estimates.get(id_) or {0.0}
        return math.fsum(known) / len(known)

    def trust(self, number: int | None = None) -> float:
        """How far estimates are believed, from 0 to 1: by their mean distance from each other and from measurement."""
        errors = [max(known) - min(known) for known in self.estimates.values() if len(known) > 1]
        gains = {id_: self.judge(id_, number).gain for id_, known in self.estimates.items() if known}
        errors += [abs(self.expect(id_) - gain) for id_, gain in gains.items() if gain is not None]
        return AGREED / (AGREED + math.fsum(errors) / len(errors)) if errors else 0.0

    def count_open(self, number: int) -> int:
        """The ideas that are worth a try."""
        return sum(self.judge(i, number).state in (OPEN, TRIED) and i not in self.doubts for i in self.ideas)

    # ------------------------------------------------------------ what is asked next

    def draw(self, every: Sequence[Idea], asked: Counter[str], number: int, rng: random.Random) -> Idea:
        """Draws an idea for a kernel: one of these or of the plan, none that is refuted while there are others.

        asked counts what was asked for there already. A finding that was not acted on there goes first.
        """
        own = {self.find(i.action) or i.id for i in every}
        listed = [*every, *(idea for id_, idea in sorted(self.ideas.items()) if id_ not in own)]
        left = [i for i in listed if is_general(i.action) or self._judge(i, number).state != REFUTED] or list(every)
        left = [i for i in left if i.found and not asked[i.id]] or left
        trust = self.trust(number)
        return rng.choices(left, [self._weigh(i, trust, number) / (1 + asked[i.id]) for i in left])[0]

    def _judge(self, idea: Idea, number: int) -> IdeaStanding:
        return self.judge(self.find(idea.action), number)

    def _weigh(self, idea: Idea, trust: float, number: int) -> float:
        id_ = self.find(idea.action)
        expected = self.expect(id_) or (math.log(idea.expected) if idea.expected else 0.0)
        depth = max(self.judge(a, number).gain or 0.0 for a in (id_, *self._list_above(id_)))
        odds = idea.odds * (DOUBTED if id_ in self.doubts else 1.0) / (1 + self.judge(id_, number).tries)
        return odds * math.exp(SHARPNESS * (trust * expected + min(max(depth, 0.0), WIDEST)))

    def _list_above(self, id_: str) -> list[str]:
        """The ideas that one is a step of, the nearest first."""
        chain: list[str] = []
        while (id_ := self.ideas[id_].above if id_ in self.ideas else "") and id_ not in chain:
            chain.append(id_)
        return chain

    # ------------------------------------------------------------ as text and data

    def as_rows(self, number: int | None = None) -> list[dict[str, Any]]:
        """The plan as JSON's types, each idea before its steps, with its depth in the tree."""
        below: dict[str, list[str]] = {}
        for id_ in sorted(self.ideas, key=lambda id_: (-self.expect(id_), id_)):
            above = self._list_above(id_)
            below.setdefault(above[0] if above and above[0] in self.ideas and id_ not in above else "", []).append(id_)

        def rows(above: str, depth: int) -> Iterator[dict[str, Any]]:
            for id_ in below.get(above, ()):
                idea, standing, expected = self.ideas[id_], self.judge(id_, number), self.expect(id_)
                facts = {name: getattr(standing, name) for name in ("state", "tries", "evidence")}
                facts |= {"gain": standing.gain and round(math.exp(standing.gain), 4), "standing": str(standing)}
                facts |= {"expected": round(math.exp(expected), 3) if expected else None, "what": idea.action}
                facts |= {"why": idea.why, "doubt": self.doubts.get(id_, ""), "author": idea.author}
                yield {"id": id_, "above": above, "depth": depth, **facts}
                yield from rows(id_, depth + 1)

        return list(rows("", 0))

    def describe(self, number: int | None = None) -> tuple[str, ...]:
        """The plan in lines; where there are too many, those that are refuted go first, then the oldest open ones."""
        rows, ranks = self.as_rows(number), (REFUTED, OPEN, TRIED, GAINED)
        kept = sorted(range(len(rows)), key=lambda n: ranks.index(rows[n]["state"]))[-SHOWN:]
        return tuple(format_idea(rows[n]) for n in sorted(kept))


def make_idea(what: str, why: str = "", gain: str | float = "", above: str = "", author: str = "") -> Idea:
    """An idea in somebody's words, cut to a sentence each; an expected gain that is not between 1 and 20 is none."""
    found = _GAIN.fullmatch(str(gain).strip())
    expected = float(found[1]) if found and 1 < float(found[1]) <= 20 else None
    why, author = clean(why, 120), clean(author, 60)
    return Idea(clean(what, 200), WHOLE[IMPROVE], why=why, expected=expected, above=above, author=author)


def format_idea(row: Mapping[str, Any]) -> str:
    """A row of a plan in a line."""
    left = row["state"] in (OPEN, TRIED)
    expected = f", {row['expected']:.2f}x expected" if row["expected"] and left else ""
    why = f" ({row['why']})" if row["why"] and left else ""
    doubt = f" DOUBTED: {row['doubt']}" if row["doubt"] else ""
    return f"{'  ' * row['depth']}{row['id']} {row['standing']}{expected}: {row['what']}{why}{doubt}"


def _words_of(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text.lower()))


def _are_alike(some: frozenset[str], others: frozenset[str]) -> bool:
    """Whether two sentences are one idea; another number is another idea."""
    differs = any(re.search(r"\d", word) for word in some ^ others)
    return not differs and len(some & others) >= SAME * len(some | others)


def _try_of(row: Mapping[str, Any]) -> IdeaTry:
    score, parent = row["score"], row["parent_score"]
    configs = math.prod(len(values) for values in flatten_space(json.loads(row["space"])).values())
    settled = bool(row["searched"]) or row["trials"] >= min(TUNED, configs)
    gain = math.log(parent / score) if score and parent else None
    return IdeaTry(gain, settled, row["evidence"] or "", (row["reason"] or "") if score is None else "")
