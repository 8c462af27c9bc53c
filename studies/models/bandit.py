"""Does the bandit see through a useless model, and does it find out a good one? On the simulated landscape.

    python studies/models/bandit.py [seeds]

The landscape is an invention (studies/simulated.py); what is tested is the choice, not any kernel. Both models answer
with whole kernel files, in conversations, through the proposer that a served model has: `useless` writes kernels that
are refused three times in five and otherwise change nothing or make things slower; `knows` writes the one that is best
after the last kernel of the conversation, by the landscape's own formula.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import simulated
from kernelsearch.core.types import Outcome, Verdict, Word
from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.bandit import BanditParams
from kernelsearch.propose.contract import Proposer
from kernelsearch.propose.engines import Ask, Engine, Reply, Sample
from kernelsearch.propose.grammar.whole_kernel import find_file
from kernelsearch.propose.mix import ProposerMix, RunLimits
from kernelsearch.propose.models.model import ModelProposer, Models
from kernelsearch.propose.models.prompt import PromptDevice
from kernelsearch.propose.models.shared import WHOLE_KERNELS
from kernelsearch.record.rows import RunFacts
from kernelsearch.record.store import Store
from kernelsearch.search import Search, Settings, make_start, strategies
from kernelsearch.trial.evaluator import Evaluator
from kernelsearch.verify import gate
from simulated import structure_of

TRIALS = 200
WINDOW = 8
DEFAULTS = BanditParams()
Write = Callable[[Kernel, Ask], str | None]


class Author(Engine):
    """A model that adds a constant to the last kernel that it was shown."""

    name = label = "scripted"

    def __init__(self, write: Write) -> None:
        self.write, self.asked = write, 0

    def complete(self, ask: Ask) -> Reply:
        self.asked += 1
        page = ask.page.partition("THE KERNEL, WITH ITS BEST CONFIG\n")[2].partition("\n\nHOW IT IS LAUNCHED")[0]
        shown = Kernel.parse(find_file(ask.turns[-1][0] if ask.turns else page))
        name = self.write(shown, ask)
        if name is None:
            return Reply((Sample("I know nothing better."),))
        constants = tuple(sorted({*shown.constants, f"{name} = tl.constexpr(1)"}))
        kernel = shown.with_changes(constants=constants, space=simulated.SPACE, config=simulated.CONFIG)
        return Reply((Sample(f"```python\n{kernel.render()}```"),))


def useless(kernel: Kernel, ask: Ask) -> str:
    return f"junk_{ask.seed}"


def knows(land: simulated.Landscape) -> Write:
    def write(kernel: Kernel, ask: Ask) -> str | None:
        here = structure_of(kernel)
        best = [(land.log_gain(here | {e}), e) for e in land.applicable(here) if not land.rejected(here | {e})]
        return min(best)[1] if best else None

    return write


@dataclass(frozen=True)
class Junk(Evaluator):
    """Refuses three in five of what the useless model made; the others take up to 30 % longer than without the junk."""

    inner: simulated.Simulated

    def evaluate(self, kernel, config, incumbent=None) -> Outcome:
        junk = tuple(c for c in kernel.constants if c.startswith("junk"))
        if not junk:
            return replace(self.inner.evaluate(kernel, config, incumbent), seconds=1.0)
        if simulated.unit("junk", *junk) < 0.6:
            return Outcome(Verdict(Word.COMPILE, "compile", "simulated: it does not compile"), seconds=1.0)
        clean = kernel.with_changes(constants=tuple(c for c in kernel.constants if c not in junk))
        outcome = self.inner.evaluate(clean, config, incumbent)
        if outcome.measurement is None:
            return replace(outcome, seconds=1.0)
        slower = 1.0 + 0.3 * max(0.0, simulated.unit("slower", *junk) - 0.3)
        times = tuple(replace(t, time_us=t.time_us * slower) for t in outcome.measurement.times)
        return replace(outcome, measurement=replace(outcome.measurement, times=times), seconds=1.0)


def run(land: simulated.Landscape, seed: int, write=None, trials: int = TRIALS, params: BanditParams = DEFAULTS):
    """The best score of a run and the asks at which the model was asked, out of all rewrites."""
    task, shared = simulated.task(), Models(gate.check, PromptDevice("simulated"))
    edits = simulated.SimulatedProposer(land)
    model = ModelProposer(Author(write), shared, WHOLE_KERNELS, whole=True) if write else None
    proposer = ProposerMix([model], shared, RunLimits(trials), edits=edits, params=params) if model else edits
    rewrites: list[int] = []

    class Counting(Proposer):
        def propose(self, request, rng):
            rewrites.append(request.number)
            return proposer.propose(request, rng)

        def tell(self, trial, kernel, parent):
            if model:
                proposer.tell(trial, kernel, parent)

    evaluator = simulated.Noisy(Junk(simulated.Simulated(land)), 0.01, seed)
    strategy = strategies.make("evolve", make_start(task, seed, trials))
    with Store.open_in_memory() as store:
        settings = Settings(RunFacts("evolve", "mix", seed, WINDOW, trials))
        result = Search(task, strategy, Counting(), evaluator, store, settings).run()
    return result.best.score, sorted(set(rewrites)), {c.number for c in shared.ledger.calls}


def geometric(values):
    return math.exp(statistics.fmean(map(math.log, values)))


def sees_through(seeds: int, params: BanditParams = DEFAULTS) -> tuple[list[float], list[float], float]:
    """Losses against typed edits alone by landscape, those of typed edits against themselves, and the model's share.

    Alone is the geometric mean of three runs; the control is a fourth, which shows what chance does.
    """
    losses, control, shares = [], [], []
    for seed in range(seeds):
        land = simulated.Landscape(seed)
        alone = geometric([run(land, seed + k)[0] for k in (0, 1000, 2000)])
        mixed, rewrites, asked = run(land, seed, useless, params=params)
        losses.append(mixed / alone)
        control.append(run(land, seed + 5000)[0] / alone)
        shares.append(len(asked) / len(rewrites))
    return losses, control, statistics.fmean(shares)


def interval(losses: list[float]) -> str:
    """The geometric mean as a percentage, with its standard error."""
    logs = [math.log(x) for x in losses]
    error = statistics.stdev(logs) / math.sqrt(len(logs))
    return f"{100 * (geometric(losses) - 1):+.1f} % (+- {100 * error:.1f})"


def finds_out(seeds: int, params: BanditParams = DEFAULTS) -> list[tuple[int, float]]:
    """For each seed: the proposal at which the model was asked for the third time, and its share of the 100 after 30.

    The landscape has edits enough that the right one does not run out.
    """
    found = []
    for seed in range(seeds):
        land = simulated.Landscape(100 + seed, edits=80, floor=0.05, applies=1.0)
        _, rewrites, asked = run(land, seed, knows(land), trials=330, params=params)
        of_model = [i for i, number in enumerate(rewrites) if number in asked]
        third = of_model[2] if len(of_model) > 2 else -1
        found.append((third, sum(30 <= i < 130 for i in of_model) / max(1, min(130, len(rewrites)) - 30)))
    return found


if __name__ == "__main__":
    count = int(sys.argv[1]) if sys.argv[1:] else 16
    losses, control, share = sees_through(count)
    print(
        f"useless model in the mix, {count} landscapes, {TRIALS} trials each: the best kernel takes {interval(losses)} "
        f"against typed edits alone (limit +5 %); typed edits against themselves {interval(control)}"
    )
    print(
        f"  by landscape: {' '.join(f'{100 * (x - 1):+.0f}' for x in sorted(losses))} %; "
        f"it got {100 * share:.0f} % of the proposals"
    )
    found = finds_out(count)
    shares = [s for _, s in found]
    print(
        f"model that knows the right edit, {count} landscapes: third call at proposal "
        f"{' '.join(str(t + 1) for t, _ in found)} (limit 30)"
    )
    print(
        f"  share of the next 100 proposals: {' '.join(f'{100 * s:.0f}' for s in shares)} %, "
        f"median {100 * statistics.median(shares):.0f} % (limit 50 %)"
    )
