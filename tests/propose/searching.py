"""A search with a model in it, small and without workers: a judge by formula, the mix, a run that may be broken off."""

from dataclasses import replace

import edit_seeds
from scripted import Scripted, sampling, shared

from kernelsearch.core.types import Evidence, Outcome, ShapeFact, Verdict, Word
from kernelsearch.propose import proposers
from kernelsearch.propose.mix import ProposerMix, RunLimits
from kernelsearch.propose.models.model import ModelProposer, ModelSettings
from kernelsearch.record.rows import RunFacts
from kernelsearch.search import Search, make_start, strategies
from kernelsearch.search import Settings as SearchSettings
from kernelsearch.trial.evaluator import Evaluator
from made_outcomes import accept
from simulated import unit

TASK = edit_seeds.facts(
    edit_seeds.task("column_sum").seed, "column_sum", {"BLOCK_ROWS": (32, 64), "num_warps": (2, 4, 8)}
)
BUDGET = 24
SHAPE = ShapeFact("timed:0", "rows=64", {})


class Judge(Evaluator):
    """Times that are a function of the candidate; a fifth of the kernels does not compile."""

    def evaluate(self, kernel, config, incumbent=None):
        if len(kernel.functions) and unit("fails", kernel.digest) < 0.2 and kernel.digest != SEED.digest:
            return Outcome(
                Verdict(Word.COMPILE, "compile", "at 3:4:\n    x = y\n        ^\nname 'y' is not defined"), seconds=1.0
            )
        time_us = 10.0 + unit(kernel.digest) + unit(str(sorted(config.items())))
        return accept(time_us, evidence=Evidence.ESTIMATED, seconds=1.0)


SEED = edit_seeds.Kernel.parse(TASK.seed)


def task():
    return replace(TASK, shapes=(SHAPE,), config={"BLOCK_ROWS": 32, "BLOCK_COLS": 32, "num_warps": 4})


def mix(answer=sampling, say=lambda text: None, **fields):
    models = shared(say)
    engine = answer if hasattr(answer, "complete") else Scripted(answer)
    return ProposerMix(
        [ModelProposer(engine, models, ModelSettings(samples=2))], models, RunLimits(BUDGET), **fields
    ), engine


def searched(proposer, store, trials, resume=None, budget=BUDGET, judge=Judge):
    facts = RunFacts("evolve", "mix", 3, 4, budget)
    strategy = strategies.make("evolve", make_start(task(), 3, budget))
    search = Search(task(), strategy, proposer, judge(), store, SearchSettings(facts), resume)
    proposers.bind_record(proposer, store, search.run_row, resume)
    done = []

    def on_trial(trial, progress):
        done.append(progress)
        if trial.number + 1 == trials < budget:
            raise KeyboardInterrupt

    result = search.run(on_trial)
    return replace(result, trials=tuple(result.trials)), done  # the store may be closed when they are looked at


def story(result):
    return [(t.number, t.kernel, t.edit, dict(t.config), t.score) for t in result.trials]
