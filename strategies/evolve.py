"""Evolve: a population of accepted kernels; asks rewrite a good one, compose what gained, or tune by halving.

Steady-state evolution with tournament selection (Goldberg and Deb, 1991), and what kernels need besides: the seed's
numbers are tuned first (most of all where hints ask for no rewrite), because a structure is judged at the config that
it inherits. A new structure gets one more rung of tuning trials only while it stays near the leader (successive
halving; Jamieson and Talwalkar, 2016), at configs that did well for its relatives, next to its own best, or from the
tuner. Where a launcher has several functions, and each is timed by itself, the tuner alone chooses: it has a model of
each function, and tries values of all of them in one trial. Edits that hints about a kernel suggest are tried on it at
once, and tuned with more patience; the odds of all other rewrites follow what they gain in this run and, before that,
on other tasks. Edits that gained elsewhere are composed in one rewrite of a good kernel (crossover: typed edits commute
where they touch different things, and one that no longer applies drops out). An edit may close the door to a better
one: so each edit that applies to the seed is tried on it, and one that a good kernel does not take any more is put in
front of its other edits. A kernel with the machine code of an older one stays out. The last asks polish the leaders'
numbers. Where several shapes are timed, a kernel is good if it is the best, or nearly so, at some of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

from kernelsearch.core.types import SAMPLER, Config, Proposal, ProposalKind, Trial, config_key, is_whole_kernel
from kernelsearch.measure.hints.changes import list_suggested_edits
from kernelsearch.search.contract import Start

SHARP, PRIOR = 8, 0.02
"""The exponent of the mean over shapes: a kernel that is best at one of four counts as one that is 1.2 times the best.
A shape's weight is the logarithm of what was gained there, and this.
"""

SIDE_BY_SIDE = 3
"""The edits of a survey that consecutive asks try in turn: those in flight together do not see each other's."""
NUMBERS = 0.8
"""The share of the first asks that tune the seed where hints about it name no edit; else it is half."""
SEVERAL = 0.3
"""In place of `rewrite` where several functions are tuned at once, which have more numbers."""
RUNGS = ((1.6, 3), (1.15, 6), (1.03, 12))
"""(Score over the leader's, trials that a structure so near may have)."""
PATIENCE, WHOLE = 6, 8
"""Trials in any case: of a structure that a hint asked for, and of a kernel that was written whole, whose config is a
guess. Where it has the names of its parent's, that one is its second, and then it is judged like any other."""
FRESH = 0.6
"""The chance that an ask, before anything else, is one of those trials of a kernel that was written whole."""
RELATIVE, NEIGHBOUR = 0.35, 0.4
"""Chances of a tuning ask: a config that did well for another structure, a step from the kernel's best one."""
GAINED = 1.01
"""The gain from which an edit is worth composing."""


@dataclass(frozen=True)
class Params:
    """How a budget is divided. Other values were tried, and none was better beyond chance (studies/strategies).

    warm: the first share of the budget, where most asks tune the seed or try edits on it.
    polish: the last share, which tunes the leaders only.
    rewrite: the chance of a new structure in between.
    young: the chance of the next rung of one that is near the leader; the rest tunes the population.
    survey: the share of rewrites that try the next edit on the seed.
    insert: the share of rewrites that begin anew with an edit that the parent does not take.
    direct: the share of rewrites that apply an edit that hints about the parent suggest and that was not tried on it.
    compose: the share of rewrites that apply several edits that gained.
    sharpness: how strongly log gains move the odds of edits.
    hinted: the log gain that is expected of an edit that hints suggest, before its first trial; it counts as one trial.
    population: how many kernels may have children.
    tournament: how many of them are drawn for one place.
    sampler: the tuner's, of what is not a relative's or neighbouring config.
    """

    warm: float = 0.15
    polish: float = 0.15
    rewrite: float = 0.45
    young: float = 0.3
    survey: float = 0.5
    insert: float = 0.3
    direct: float = 0.4
    compose: float = 0.25
    sharpness: float = 6.0
    hinted: float = 0.15
    population: int = 8
    tournament: int = 4
    sampler: str = SAMPLER


@dataclass
class Member:
    """A kernel of this run: where it came from and how it has done so far.

    edits are all since the seed; times are its least ones by shape, whichever config had them (configs), and inherited
    its parent's when it was made; config is its best one, with the times at; tried has all configs; hinted are the
    edits that hints suggest for its best config; asked are those that were tried on it; wanted: a hint about its parent
    asked for it; told: there were hints about its best config; whole: it was written whole, and has configs left;
    parent: its parent's digest; twin: its machine code was known; refused: edits that it does not take; promise: the
    share of its time that is expected of the config that its tuner gives next; displaced: edits that were asked for by
    name, where a model wrote a kernel instead.
    """

    edits: tuple[str, ...]
    edit: str | None
    inherited: dict[str, float]
    times: dict[str, float] = field(default_factory=dict)
    configs: dict[str, Config] = field(default_factory=dict)
    config: Config = field(default_factory=dict)
    at: dict[str, float] = field(default_factory=dict)
    tried: set[str] = field(default_factory=set)
    hinted: tuple[str, ...] = ()
    asked: set[str] = field(default_factory=set)
    wanted: bool = False
    whole: bool = False
    told: bool = False
    parent: str = ""
    twin: bool = False
    refused: dict[str, None] = field(default_factory=dict)
    promise: float = 1.0
    displaced: dict[str, None] = field(default_factory=dict)


@dataclass
class Gains:
    """The gains of an edit in this run: clipped log gains of the structures that it made."""

    total: float = 0.0
    count: int = 0
    best: float = 0.0


@dataclass
class Strategy:
    params: Params
    start: Start
    members: dict[str, Member] = field(default_factory=dict)
    leaders: list[str] = field(default_factory=list)
    young: dict[str, None] = field(default_factory=dict)
    gains: dict[str, Gains] = field(default_factory=dict)
    works: dict[str, str] = field(default_factory=dict)
    first_us: dict[str, float] = field(default_factory=dict)
    best_us: dict[str, float] = field(default_factory=dict)
    apart: bool = False
    """Whether it is known what functions took that have names of their own: then the tuner tunes each by itself."""

    def ask(self, number: int) -> Proposal | None:
        rng, params, budget = self.start.rng(number), self.params, self.start.trials
        if not self.leaders:
            return Proposal(ProposalKind.RETUNE, (self.start.kernel,))
        fresh = [d for d in self.young if len(self.members[d].tried) < self._own_trials(self.members[d])]
        if fresh and rng.random() < FRESH:
            child = self.members[fresh[0]]
            config = self.members[child.parent].config if self._has_names_of_parent(child) else None
            return Proposal(ProposalKind.RETUNE, (fresh[0],), config=config, sampler=params.sampler)
        draw = rng.random()
        if number <= params.warm * budget and draw < self._seed_share():
            return self._tune(rng, self.start.kernel)
        if number >= (1 - params.polish) * budget:
            return self._tune(rng, self._draw_leader(rng))
        rewrite = SEVERAL if self.apart else params.rewrite
        if number <= params.warm * budget or draw < rewrite:
            return self._rewrite(rng, number)
        young = list(self.young)[-64:]
        if young and draw < rewrite + params.young:
            return self._tune_young(rng, young)
        return self._tune(rng, self._draw_leader(rng))

    def tell(self, trial: Trial) -> None:
        member = self.members.get(trial.kernel)
        if member is None:
            member = self.members[trial.kernel] = self._make_member(trial)
            work = trial.outcome.work
            member.twin = bool(work) and self.works.get(work, trial.kernel) != trial.kernel
        self.apart = self.apart or (self.start.several and _has_parts(trial))
        if trial.outcome.work:
            self.works.setdefault(trial.outcome.work, trial.kernel)
        before, times = dict(member.times), _times_of(trial)
        member.tried.add(config_key(trial.config))
        self._note_asked(trial)
        for shape, us in times.items():
            self.first_us.setdefault(shape, us)
            if us < member.times.get(shape, math.inf):
                member.times[shape], member.configs[shape] = us, trial.config
            self.best_us[shape] = min(us, self.best_us.get(shape, math.inf))
        if self._rate(times) < self._rate(member.at):
            member.at, member.config = times, trial.config
            member.hinted, member.told = list_suggested_edits(trial.outcome.hints), bool(trial.outcome.hints)
        if member.times != before:
            self._place(trial.kernel)
        self._credit(member, before)
        self._update_young(trial.kernel, member)

    def expect(self, kernel: str, ratio: float) -> None:
        """The static model expects this share of a new kernel's time at the config that its tuner gives next."""
        member = self.members[kernel]
        if len(member.tried) == 1:
            member.promise = ratio
            self._update_young(kernel, member)

    def weights(self) -> dict[str, float]:
        """Odds of the edits by name: exp(sharpness * mean log gain), smoothed by one trial that gave what was expected.

        The expected gain is `hinted` for an edit that hints about the leading kernels suggest, else 0. A rejected
        rewrite counts as a small loss; an edit that was neither tried nor suggested has odds of 1.
        """
        expected = self._expect_gains()
        return {e: math.exp(self.params.sharpness * self._mean(e, expected)) for e in sorted({*self.gains, *expected})}

    # ------------------------------------------------------------ asking

    def _seed_share(self) -> float:
        """The share of the first asks that tune the seed: larger if hints about it name no edit."""
        seed = self.members[self.start.kernel]
        return NUMBERS if seed.told and not seed.hinted else 0.5

    def _rewrite(self, rng, number: int) -> Proposal:
        edit = self._next_of_survey(number)
        if edit and rng.random() < self.params.survey:
            return Proposal(ProposalKind.REWRITE, (self.start.kernel,), edit=edit)
        parent = self._draw_leader(rng)
        if (anew := self._put_in_front(parent)) and rng.random() < self.params.insert:
            return Proposal(ProposalKind.REWRITE, (self.start.kernel,), edit=rng.choice(anew))
        draw = rng.random()
        untried = [e for e in self.members[parent].hinted if e not in self.members[parent].asked]
        if untried and draw < self.params.direct:
            return Proposal(ProposalKind.REWRITE, (parent,), edit=rng.choice(untried))
        if draw > 1 - self.params.compose:
            edits = self._find_gaining(parent)
            if len(edits) > 1:
                chosen = edits[: rng.randint(2, min(4, len(edits)))]
                return Proposal(ProposalKind.REWRITE, (parent,), edit="+".join(chosen))
        return Proposal(ProposalKind.REWRITE, (parent,))

    @cached_property
    def _of_seed(self) -> tuple[str, ...]:
        """The edits that the seed takes, those that usually gain most first."""
        return tuple(sorted(self.start.list_edits(), key=lambda e: -self.start.usual_gains.get(e, 0.0)))

    def _next_of_survey(self, number: int) -> str | None:
        """An edit that was not tried on the seed yet; asks that are in flight together get different ones.

        Those come first whose turn a model took, then those that gain most on other tasks. A large gain may be one edit
        of the seed that no other kernel takes.
        """
        seed = self.members[self.start.kernel]
        displaced, edits = ([e for e in some if e not in seed.asked] for some in (seed.displaced, self._of_seed))
        edits = displaced or edits
        return edits[number % min(len(edits), SIDE_BY_SIDE)] if edits else None

    def _put_in_front(self, parent: str) -> list[str]:
        """Compositions for the seed: an edit that the parent does not take, but should gain, then the parent's own."""
        own, seed = self.members[parent], self.members[self.start.kernel]
        if any(map(_by_a_model, own.edits)):
            return []
        worth = [e for e in own.refused if e in own.hinted or self._gained(e)]
        anew = ["+".join((e, *own.edits)) for e in worth]
        return [e for e in anew if e not in seed.asked]

    def _gained(self, edit: str) -> bool:
        return edit in self.gains and self.gains[edit].best >= math.log(GAINED)

    def _find_gaining(self, parent: str) -> list[str]:
        """Edits that gained in this run and that the parent does not have, the best first."""
        has = set(self.members[parent].edits)
        gaining = [e for e in self.gains if self._gained(e) and e not in has and not _by_a_model(e)]
        return sorted(gaining, key=lambda e: -self.gains[e].best)

    def _tune(self, rng, digest: str) -> Proposal:
        draw = 1.0 if self.apart else rng.random()
        if draw < RELATIVE:
            config = self._take_from_relative(rng, digest)
            if config is not None:
                return Proposal(ProposalKind.RETUNE, (digest,), config=config)
        near = draw < RELATIVE + NEIGHBOUR
        return Proposal(ProposalKind.RETUNE, (digest,), sampler="neighbour" if near else self.params.sampler)

    def _tune_young(self, rng, young: list[str]) -> Proposal:
        """The next rung of the kernel of which most is expected, now and then; else of any."""
        promising = [d for d in young if self.members[d].promise < 1.0]
        if not promising:
            return self._tune(rng, rng.choice(young))
        digest = min(promising, key=lambda d: self.members[d].promise * self._rate(self.members[d].times))
        self.members[digest].promise = 1.0  # one trial shows whether it holds
        return Proposal(ProposalKind.RETUNE, (digest,), sampler="neighbour")

    def _take_from_relative(self, rng, digest: str) -> Config | None:
        """A leader's config that this kernel has not tried, its best or one of the better; only names that it knows."""
        own = self.members[digest]
        configs: dict[str, tuple[float, Config]] = {}
        for other in self.leaders:
            if other != digest:
                theirs = self.members[other]
                for good in (theirs.config, *theirs.configs.values()):
                    config = {**own.config, **{n: v for n, v in good.items() if n in own.config}}
                    key = config_key(config)
                    if key not in own.tried:
                        configs.setdefault(key, (self._rate(theirs.times), config))
        ranked = sorted(configs.values(), key=lambda c: c[0])
        return ranked[min(rng.randrange(len(ranked)) for _ in range(2))][1] if ranked else None

    def _own_trials(self, member: Member) -> int:
        """The trials that a kernel has in any case: of a whole one two if the second can be its parent's best."""
        if not member.whole:
            return 0
        return 2 if self._has_names_of_parent(member) else WHOLE

    def _has_names_of_parent(self, member: Member) -> bool:
        above = self.members.get(member.parent)
        return above is not None and above.config.keys() == member.config.keys()

    def _draw_leader(self, rng) -> str:
        return self.leaders[min(rng.randrange(len(self.leaders)) for _ in range(self.params.tournament))]

    # ------------------------------------------------------------ telling

    def _make_member(self, trial: Trial) -> Member:
        parents = [self.members[p] for p in trial.proposal.parents if p in self.members]
        own = tuple(trial.edit.split("+")) if trial.edit else ()
        if not parents:
            return Member(own, trial.edit, {})
        wanted, whole = any(e in parents[0].hinted for e in own), is_whole_kernel(trial.edit)
        shapes = dict.fromkeys(s for p in parents for s in p.times)
        inherited = {s: min(p.times.get(s, math.inf) for p in parents) for s in shapes}
        parent = trial.proposal.parents[0]
        return Member((*parents[0].edits, *own), trial.edit, inherited, wanted=wanted, whole=whole, parent=parent)

    def _note_asked(self, trial: Trial) -> None:
        """Notes the edit that was asked of the parent, whether or not it gave a kernel.

        An edit that was asked for by name stays untried if a model wrote the kernel instead. A whole kernel for which
        another one was tuned has no configs left.
        """
        asked_for = self.members.get(trial.proposal.parents[0]) if trial.proposal.parents else None
        if asked_for and trial.proposal.kind is ProposalKind.RETUNE and trial.proposal.parents[0] != trial.kernel:
            asked_for.whole = False
        if asked_for and trial.proposal.kind is ProposalKind.REWRITE:
            wanted, by_a_model = trial.proposal.edit, _by_a_model(trial.edit)
            asked_for.asked.update(e for e in (None if by_a_model else wanted, trial.edit) if e)
            if wanted and by_a_model:
                asked_for.displaced.setdefault(wanted)
            elif wanted and "+" not in wanted and wanted != trial.edit:
                asked_for.refused.setdefault(wanted)

    def _place(self, digest: str) -> None:
        """Puts a kernel that got better among the leaders; of equals the older, simpler one stays first."""
        if self.members[digest].twin:
            return
        if digest not in self.leaders:
            self.leaders.append(digest)
        self.leaders.sort(key=lambda d: self._rate(self.members[d].times))
        del self.leaders[self.params.population :]

    def _update_young(self, digest: str, member: Member) -> None:
        """Updates which kernels may have the next rung: near enough to the leader, and not yet tried so often."""
        if not self.leaders:
            return
        if self._may_grow(member):
            self.young.setdefault(digest)
        else:
            self.young.pop(digest, None)
        if self.leaders[0] == digest:  # a new leader leaves others behind
            self.young = {d: None for d in self.young if self._may_grow(self.members[d])}

    def _may_grow(self, member: Member) -> bool:
        if member.twin:
            return False
        leader = self.members[self.leaders[0]]
        near = member.promise * self._rate(member.times) / self._rate(leader.times)
        most = max((n for limit, n in RUNGS if near <= limit), default=0)
        if member.times:
            most = max(most, self._own_trials(member))
        return len(member.tried) < (max(most, PATIENCE) if most and member.wanted else most)

    def _rate(self, times: dict[str, float]) -> float:
        """How near times come to the best of each shape: 1 is the best everywhere, infinity is nowhere.

        Of several shapes this is a power mean in which the nearest count most, and shapes by what was gained there.
        """
        ratios = {shape: us / self.best_us[shape] for shape, us in times.items()}
        if len(self.best_us) < 2 or not ratios:
            return next(iter(ratios.values()), math.inf)
        gained = {s: PRIOR + max(0.0, math.log(self.first_us.get(s, us) / us)) for s, us in self.best_us.items()}
        return (sum(gained[s] * r**-SHARP for s, r in ratios.items()) / sum(gained.values())) ** (-1.0 / SHARP)

    def _credit(self, member: Member, before: dict[str, float]) -> None:
        """Books what the member's edits gained: at its first trial, and again when tuning makes it better."""
        if member.edit is None or (len(member.tried) > 1 and member.times == before):
            return
        parts = member.edit.split("+")
        new, old = self._gain(member, member.times), self._gain(member, before)
        for part in parts:
            gains = self.gains.setdefault(part, Gains())
            if len(member.tried) == 1:
                gains.count += 1
                gains.total += new / len(parts)
            else:
                gains.total += (new - old) / len(parts)
            gains.best = max(gains.best, new / len(parts))

    def _gain(self, member: Member, times: dict[str, float]) -> float:
        if not times:
            return -0.1
        gain = math.log(self._rate(member.inherited) / self._rate(times)) if member.inherited else 0.0
        return max(-0.3, min(0.3, gain))

    def _mean(self, edit: str, expected: dict[str, float]) -> float:
        gains = self.gains.get(edit, Gains())
        return (expected.get(edit, 0.0) + gains.total) / (gains.count + 1)

    def _expect_gains(self) -> dict[str, float]:
        """The prior: what edits gain on other tasks, or more if hints about the most frequent parents suggest them."""
        leading = self.leaders[: max(1, self.params.population // self.params.tournament)]
        expected = {e: gain for e, gain in self.start.usual_gains.items() if gain}
        for edit in (e for digest in leading for e in self.members[digest].hinted):
            expected[edit] = max(self.params.hinted, expected.get(edit, 0.0))
        return expected


def _times_of(trial: Trial) -> dict[str, float]:
    """The times of an accepted trial in microseconds, by shape."""
    return dict(trial.outcome.measurement.by_shape) if trial.outcome.measurement else {}


def _has_parts(trial: Trial) -> bool:
    """Whether its times say what several functions took."""
    times = trial.outcome.measurement.times if trial.outcome.measurement else ()
    return any(len(t.detail.get("parts_us") or ()) > 1 for t in times)


def _by_a_model(edit: str | None) -> bool:
    """`model:NAME` and `repair:NAME` name the author of a kernel; there is no such edit to ask for again."""
    return edit is not None and ":" in edit
