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
from typing import Any

from kernelsearch.core.model_calls import ModelCall
from kernelsearch.core.types import content_digest, is_gain
from kernelsearch.kernel.literals import flatten_space
from kernelsearch.propose.grammar.unwrapped import find_blocks, strip_thinking
from kernelsearch.propose.history import TUNED, History
from kernelsearch.propose.models.ideas import IMPROVE, SHARPNESS, WHOLE, Idea, is_general
from kernelsearch.propose.models.repair import clean

OPEN, TRIED, GAINED, REFUTED = "open", "tried", "gained", "refuted"
"""States of an idea: tried is one of which no kernel was right and tuned yet."""
MOST, MOST_AN_ANSWER, SHOWN = 60, 6, 16
"""Ideas of a plan, of an answer, on the page."""
SAME = 0.8
"""The share of equal words from which two sentences are one idea."""
DOUBTED = 0.25
"""How much less a doubted idea is drawn."""
WIDEST = math.log(4)
"""The largest expectation (a log gain) that is believed."""
AGREED = 0.1
"""The mean error of estimates (as a log) at which they count half."""

_IDEA = re.compile(r"^[ \t>*-]*IDEA(?: under \[?([0-9a-f]{4,8})\]?)?[ \t]*:[ \t]*(\S.*)$", re.MULTILINE)
_DROP = re.compile(r"^[ \t>*-]*DROP \[?([0-9a-f]{4,8})\]?[ \t]*:?[ \t]*(.*)$", re.MULTILINE)
_ID = re.compile(r"([0-9a-f]{8})?")
_GAIN = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*x?")


@dataclass(frozen=True)
class IdeaTry:
    """A kernel of an idea: its log gain over its parent (None: not right yet, for this reason), settled if tuned."""

    gain: float | None
    settled: bool
    evidence: str = ""
    reason: str = ""


@dataclass(frozen=True)
class IdeaStanding:
    """The state of an idea, its tries, the best log gain of right ones, on what evidence, and the last refusal."""

    state: str = OPEN
    tries: int = 0
    gain: float | None = None
    evidence: str = ""
    reason: str = ""

    def __str__(self) -> str:
        times = "1 try" if self.tries == 1 else f"{self.tries} tries"
        if self.state in (GAINED, REFUTED) and self.gain is not None:
            percent = 100 * math.expm1(self.gain)
            said = f"{percent:.0f} % faster" if self.state == GAINED else f"{abs(percent):.0f} % slower"
            said = "no faster" if self.state == REFUTED and percent > -0.5 else said
            return f"{self.state}: {said} ({self.evidence}, {times})"
        failed = f", the last one refused: {clean(self.reason, 60)}" if self.reason else ""
        return f"{self.state} ({times}{failed})" if self.tries else self.state


@dataclass
class IdeaPlan:
    """Ideas by id in the order in which they came; keep stores one that is new or whose doubt has changed.

    made has the idea of each kernel of this run, failed counts answers that gave no kernel, past has the tries of
    earlier runs, doubts say why somebody takes an idea for wrong, estimates are expected gains by idea.
    """

    history: History
    ideas: dict[str, Idea] = field(default_factory=dict)
    made: dict[str, str] = field(default_factory=dict)
    failed: Counter[str] = field(default_factory=Counter)
    past: dict[str, list[IdeaTry]] = field(default_factory=dict)
    doubts: dict[str, str] = field(default_factory=dict)
    estimates: dict[str, list[float]] = field(default_factory=dict)
    keep: Callable[[Idea, str], None] = lambda idea, doubt: None

    # ------------------------------------------------------------ what is in it

    def recall(self, ideas: Iterable[Mapping[str, Any]], tries: Iterable[Mapping[str, Any]]) -> None:
        """Takes the record's rows of earlier runs and of agents (`record/plan_rows.py`)."""
        for row in ideas:
            if not all(_ID.fullmatch(row[name]) for name in ("id", "above")):
                continue  # no kernelsearch wrote it
            idea = make_idea(*(row[name] or "" for name in ("name", "why", "expected", "above", "author")))
            self.ideas[row["id"]] = idea
            self.estimates[row["id"]] = [idea.expected] if idea.expected else []
            if row["doubt"]:
                self.doubts[row["id"]] = clean(row["doubt"], 120)
        for row in tries:
            if id_ := row["idea"] if row["idea"] in self.ideas else self.find(row["rationale"]):
                self.past.setdefault(id_, []).append(_try_of(row))

    def find(self, text: str) -> str:
        """The id of the idea that a sentence is: the same id or one that begins so, or nearly the same words."""
        near = [id_ for id_ in self.ideas if len(text) >= 4 and id_.startswith(text)]
        if len(near) == 1 or (digest := content_digest(text)[:8]) in self.ideas:
            return near[0] if len(near) == 1 else digest
        words = _words_of(text)
        for id_, idea in self.ideas.items():
            known = _words_of(idea.action)
            if len(words & known) >= SAME * len(words | known) and len(words) > 2:
                return id_
        return ""

    def add(self, idea: Idea) -> str:
        """Adds an idea, or one more estimate of one that is there and its end of doubt; returns its id, "" if full."""
        id_ = self.find(idea.action)
        if not id_ and len(self.ideas) >= MOST:
            return ""
        id_ = id_ or idea.id
        doubted = self.doubts.pop(id_, "")
        if idea.expected and idea.expected not in self.estimates.setdefault(id_, []):
            self.estimates[id_].append(idea.expected)
        if id_ not in self.ideas or doubted:
            self.ideas.setdefault(id_, idea)
            self.keep(self.ideas[id_], "")
        return id_

    def note(self, call: ModelCall) -> int:
        """Takes note of a call: what was asked, which kernels came of it, and its answers' edits; returns their count.

        Edits stand outside of the answer's code and thinking.
        """
        asked = self.find(call.action)
        if not asked and call.ask == IMPROVE and not is_general(call.action):
            asked = self.add(Idea(call.action, WHOLE[IMPROVE], author=call.arm))
        good = [a.kernel for a in call.answers if a.kernel]
        self.made |= {kernel: asked for kernel in good if asked and kernel not in self.made}
        self.failed[asked] += bool(call.answers) and not good and bool(asked)
        return sum(self.edit(answer.text, call.arm) for answer in call.answers)

    def edit(self, text: str, author: str) -> int:
        """Makes the edits that a text asks for; returns their count. What names no idea is left alone."""
        said = strip_thinking(text)
        for block in find_blocks(said):
            said = said.replace(block, "")
        edits = 0
        for found in list(_IDEA.finditer(said))[:MOST_AN_ANSWER]:
            what, why, gain = [*map(str.strip, found[2].split("|")), "", ""][:3]
            if len(_words_of(what)) > 1:
                edits += bool(self.add(make_idea(what, why, gain, self.find(found[1] or ""), author)))
        for found in list(_DROP.finditer(said))[:MOST_AN_ANSWER]:
            edits += self.doubt(found[1], found[2] or f"{author} gives no reason")
        return edits

    def doubt(self, which: str, why: str) -> bool:
        """Notes why an idea is taken for wrong: it is drawn less, and may still be tried."""
        id_ = self.find(which)
        if id_:
            self.doubts[id_] = clean(why, 120)
            self.keep(self.ideas[id_], self.doubts[id_])
        return bool(id_)

    # ------------------------------------------------------------ what became of it

    def judge(self, id_: str, number: int | None = None) -> IdeaStanding:
        """The standing of an idea at this ask of the search; None: after it."""
        tries = [*self.past.get(id_, ()), *self._tries_here(id_, number)]
        count, reasons = len(tries) + self.failed[id_], [t.reason for t in tries if t.reason]
        right = [t for t in tries if t.gain is not None and t.settled]
        if not right:
            return IdeaStanding(TRIED if count else OPEN, count, reason=reasons[-1] if reasons else "")
        best = max(right, key=lambda t: t.gain or 0.0)
        return IdeaStanding(GAINED if is_gain(math.exp(best.gain or 0.0)) else REFUTED, count, best.gain, best.evidence)

    def _tries_here(self, id_: str, number: int | None) -> Iterator[IdeaTry]:
        for digest in (kernel for kernel, idea in self.made.items() if idea == id_):
            if entry := self.history.get(digest):
                gain = self.history.gain(entry)
                evidence = entry.best.outcome.measurement.evidence.value if entry.best else ""
                settled = number is None or entry.is_tuned(number)
                yield IdeaTry(gain, settled, evidence, entry.refused.reason if entry.refused and not entry.best else "")

    def expect(self, id_: str) -> float:
        """The expected log gain of an idea: the mean of its estimates; 0 without any."""
        logs = [min(WIDEST, math.log(e)) for e in self.estimates.get(id_, ()) if e > 0]
        return math.fsum(logs) / len(logs) if logs else 0.0

    def trust(self, number: int | None = None) -> float:
        """How far estimates are believed, from 0 to 1: by their mean distance from each other and from measurement."""
        errors = []
        for id_, known in self.estimates.items():
            logs = [min(WIDEST, math.log(e)) for e in known if e > 0]
            errors += [max(logs) - min(logs)] if len(logs) > 1 else []
            standing = self.judge(id_, number)
            errors += [abs(self.expect(id_) - standing.gain)] if logs and standing.gain is not None else []
        return AGREED / (AGREED + math.fsum(errors) / len(errors)) if errors else 0.0

    # ------------------------------------------------------------ what is asked next

    def list_left(self, every: Sequence[Idea], number: int) -> list[Idea]:
        """Those of the ideas that no measurement has refuted; all of them if there are no others."""
        left = [i for i in every if is_general(i.action) or self._judge(i, number).state != REFUTED]
        return left or list(every)

    def draw(self, every: Sequence[Idea], asked: Counter[str], number: int, rng: random.Random) -> Idea:
        """Draws an idea for a kernel: one of these or of the plan; asked counts what was asked for there already."""
        known = {self.find(i.action) or i.id for i in every}
        planned = [idea for id_, idea in self.ideas.items() if id_ not in known]
        left = self.list_left([*every, *planned], number)
        trust = self.trust(number)
        return rng.choices(left, [self._weigh(i, trust, number) / (1 + asked[i.id]) for i in left])[0]

    def _judge(self, idea: Idea, number: int) -> IdeaStanding:
        return self.judge(self.find(idea.action), number)

    def _weigh(self, idea: Idea, trust: float, number: int) -> float:
        id_ = self.find(idea.action)
        standing = self.judge(id_, number)
        expected = self.expect(id_) or (math.log(idea.expected) if idea.expected else 0.0)
        depth = max([standing.gain or 0.0, *(self.judge(a, number).gain or 0.0 for a in self._list_above(id_))])
        doubt = DOUBTED if id_ in self.doubts else 1.0
        return idea.odds * doubt * math.exp(SHARPNESS * (trust * expected + min(depth, WIDEST))) / (1 + standing.tries)

    def _list_above(self, id_: str) -> list[str]:
        """The ideas that one is a step of, the nearest first."""
        chain: list[str] = []
        while (above := self.ideas[id_].above if id_ in self.ideas else "") and above not in chain:
            chain.append(above)
            id_ = above
        return chain

    def count_open(self, number: int) -> int:
        """The ideas that are worth a try."""
        return sum(self.judge(id_, number).state in (OPEN, TRIED) and id_ not in self.doubts for id_ in self.ideas)

    def count_tries(self, number: int) -> int:
        """The tries of all ideas so far."""
        return sum(self.judge(id_, number).tries for id_ in self.ideas)

    # ------------------------------------------------------------ as text and data

    def as_rows(self, number: int | None = None) -> list[dict[str, Any]]:
        """The plan as JSON's types, each idea before its steps, with its depth in the tree."""
        below: dict[str, list[str]] = {}
        for id_ in self.ideas:
            above = self._list_above(id_)
            below.setdefault(above[0] if above and id_ not in above and above[0] in self.ideas else "", []).append(id_)

        def rows(above: str, depth: int) -> Iterator[dict[str, Any]]:
            for id_ in below.get(above, ()):
                idea, standing, expected = self.ideas[id_], self.judge(id_, number), self.expect(id_)
                yield {
                    "id": id_, "above": idea.above, "depth": depth, "what": idea.action, "why": idea.why,
                    "expected": round(math.exp(expected), 3) if expected else None, "state": standing.state,
                    "tries": standing.tries, "gain": standing.gain and round(math.exp(standing.gain), 4),
                    "evidence": standing.evidence, "standing": str(standing), "doubt": self.doubts.get(id_, ""),
                    "author": idea.author,
                }  # fmt: skip
                yield from rows(id_, depth + 1)

        return list(rows("", 0))

    def describe(self, number: int | None = None, most: int = SHOWN) -> tuple[str, ...]:
        """The plan in lines; where there are too many, those that are refuted go first, then the oldest open ones."""
        rows = self.as_rows(number)
        ranks = (REFUTED, OPEN, TRIED, GAINED)
        left = sorted(range(len(rows)), key=lambda n: (ranks.index(rows[n]["state"]), n))[max(0, len(rows) - most) :]
        return tuple(format_idea(rows[n]) for n in sorted(left if len(rows) > most else range(len(rows))))


def make_idea(what: str, why: str = "", gain: str | float = "", above: str = "", author: str = "") -> Idea:
    """An idea in somebody's words, which are cut to a sentence each; an expected gain outside 1 to 20 is none."""
    found = _GAIN.fullmatch(str(gain).strip())
    expected = float(found[1]) if found and 1 < float(found[1]) <= 20 else None
    texts = {"why": clean(why, 120), "above": above, "author": clean(author, 60)}
    return Idea(clean(what, 160), WHOLE[IMPROVE], expected=expected, **texts)


def format_idea(row: Mapping[str, Any]) -> str:
    """A row of a plan in a line."""
    expected = f", {row['expected']:.2f}x expected" if row["expected"] and row["state"] in (OPEN, TRIED) else ""
    doubt = f" DOUBTED: {row['doubt']}" if row["doubt"] else ""
    why = f" ({row['why']})" if row["why"] and row["state"] in (OPEN, TRIED) else ""
    return f"{'  ' * row['depth']}{row['id']} {row['standing']}{expected}: {row['what']}{why}{doubt}"


def _words_of(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text.lower()))


def _try_of(row: Mapping[str, Any]) -> IdeaTry:
    score, parent = row["score"], row["parent_score"]
    configs = math.prod(len(values) for values in flatten_space(json.loads(row["space"])).values())
    settled = bool(row["searched"]) or row["trials"] >= min(TUNED, configs)
    gain = math.log(parent / score) if score and parent else None
    return IdeaTry(gain, settled, row["evidence"] or "", (row["reason"] or "") if score is None else "")
