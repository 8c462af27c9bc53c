"""Tables of studies/spaces/README.md: several recorded kernels as one launcher, tuned by one time or one each.

    python studies/spaces/several.py --draws 32
    python studies/spaces/several.py --draws 32 --search evolve

With --search a strategy searches them, beside rewrites of single kernels: what these gain is made up.
"""

import math
import random
import statistics
import sys
from pathlib import Path

import click

from kernelsearch.core.types import (
    Evidence,
    Measurement,
    Outcome,
    ShapeFact,
    ShapeTime,
    TaskFacts,
    Verdict,
    Word,
    config_key,
    content_digest,
)
from kernelsearch.kernel.source import Kernel
from kernelsearch.kernel.space import Space
from kernelsearch.propose.contract import Rewrite
from kernelsearch.propose.edits import NotApplicable
from kernelsearch.propose.typed_edits import TypedEdits
from kernelsearch.record.rows import RunFacts
from kernelsearch.record.store import Store
from kernelsearch.search import Search, Settings, make_start, strategies
from kernelsearch.trial.evaluator import Evaluator
from kernelsearch.tune.block_models import BlockModels
from kernelsearch.tune.blocks import NameBlock
from kernelsearch.tune.tuner import Tuner

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from recorded import space as recorded_space

HERE = Path(__file__).parent
NAMES = (
    "column_sum",
    "cross_entropy",
    "layernorm",
    "rmsnorm",
    "softmax_looped",
    "softmax_row",
    "swiglu",
    "matmul_skinny",
)
AFTER = (8, 16, 32, 64)
WINDOW = 4
"""Trials in flight."""


class Launcher:
    """Kernels drawn from the recorded ones: each takes a drawn share of the time, and starts at the best of three."""

    def __init__(self, seed, kernels, spaces):
        rng = random.Random(seed)
        self.spaces = {name: spaces[name] for name in rng.sample(NAMES, kernels)}
        self.times = {name: {config_key(r.config): r.time_us for r in s.rows} for name, s in self.spaces.items()}
        self.unit = {
            name: min(filter(None, times.values())) / rng.uniform(0.3, 1) for name, times in self.times.items()
        }
        self.start, values, self.blocks = {}, {}, []
        for name, space in self.spaces.items():
            right = [row for row in space.rows if row.time_us]
            first = min(rng.sample(right, 3), key=lambda row: row.time_us).config
            self.start |= {f"{name}.{p}": v for p, v in first.items()}
            values |= {f"{name}.{p}": tuple(v) for p, v in space.parameters.items()}
            self.blocks.append(NameBlock(tuple(f"{name}.{p}" for p in space.parameters), (name,)))
        self.space = Space(values)
        self.optimum = sum(min(filter(None, times.values())) / self.unit[name] for name, times in self.times.items())

    def run(self, config):
        """What each kernel takes; {} if one fails."""
        own = {n: {p: config[f"{n}.{p}"] for p in space.parameters} for n, space in self.spaces.items()}
        taken = {name: self.times[name].get(config_key(c)) for name, c in own.items()}
        return {n: us / self.unit[n] for n, us in taken.items()} if None not in taken.values() else {}

    def tune(self, seed, apart):
        """The least whole time after each trial, over the optimum."""
        models = BlockModels(self.space, self.blocks, self.start)
        tuner = Tuner(self.space, dict(self.start), lambda config: True, blocks=models)
        flying, best, curve = [], math.inf, []
        for number in range(max(AFTER)):
            flying.append(tuner.ask(random.Random(f"{seed}/{number}")))
            if len(flying) == WINDOW:
                config = flying.pop(0)
                parts = self.run(config)
                tuner.tell(config, sum(parts.values()) or None, parts=parts if apart else None)
                best = min(best, sum(parts.values()) or math.inf)
            curve.append(best / self.optimum)
        return curve


# ---------------------------------------------------------------- with rewrites

EDITS = 12
HELPFUL, NEUTRAL, LARGEST = 0.2, 0.4, 0.1
"""Shares of the rewrites of a kernel that gain up to LARGEST, and that change a hundredth; the rest lose up to it."""


def draw(*parts):
    """A number in [0, 1) that is a function of parts."""
    return int(content_digest(*map(str, parts)), 16) / 2.0**64


class Edit:
    """Changes one kernel after another: a number in its text is all that it leaves there."""

    def __init__(self, number):
        self.name, self.number, self.usual_gain = f"edit_{number:02d}", number, 0.0

    def apply(self, kernel, task):
        found = []
        for function in kernel.functions:
            text = f"{function.text}\n    tl.store(x_ptr, {self.number})"
            if text != function.text and f", {self.number})" not in function.text:
                new = Kernel.parse(kernel.render().replace(function.text, text))
                found.append(Rewrite(new, self.name, f"changes {function.name}"))
        return found or NotApplicable("all have it")


class Searched(Evaluator):
    """The launcher's kernels at recorded times, times what the made-up gains of their rewrites make of them."""

    def __init__(self, launcher, seed, apart):
        self.launcher, self.seed, self.apart = launcher, seed, apart

    def gain(self, function):
        numbers = [line.rpartition(" ")[2] for line in function.text.splitlines() if "tl.store(x_ptr" in line][1:]
        total = 0.0
        for number in numbers:
            kind, size = (draw(self.seed, function.name, number, what) for what in ("kind", "size"))
            total += (
                -LARGEST * size if kind < HELPFUL else 0.01 * (size - 0.5) if kind < HELPFUL + NEUTRAL else 0.1 * size
            )
        return math.exp(total)

    def evaluate(self, kernel, config, incumbent=None):
        parts = {n: us * self.gain(kernel.function(n)) for n, us in self.launcher.run(config).items()}
        if not parts:
            return Outcome(Verdict(Word.COMPILE, "build", "failed when it was recorded"))
        detail = {"parts_us": parts} if self.apart else {}
        times = (ShapeTime("timed:0", sum(parts.values()), detail=detail),)
        return Outcome(Verdict(Word.ACCEPT, "judge", depth="full"), Measurement(Evidence.MEASURED, "-", "-", times))


def search(launcher, strategy, seed, apart):
    """The least whole time after each trial, over the optimum of the configs: rewrites may go below it."""
    heads = [
        f"def {n}(x_ptr, {', '.join(f'{p}: tl.constexpr' for p in s.parameters if p[0] != 'n')}):"
        for n, s in launcher.spaces.items()
    ]
    text = "import triton\nimport triton.language as tl\n" + "".join(
        f"\n\n@triton.jit\n{h}\n    tl.store(x_ptr, 99)\n" for h in heads
    )
    shape = ShapeFact("timed:0", "recorded", {})
    task = TaskFacts(
        "several", "several.py", content_digest(text, str(seed)), "native", text, tuple(launcher.spaces), (shape,), (),
        launcher.space.values, launcher.start,
    )  # fmt: skip
    proposer = TypedEdits([Edit(n) for n in range(EDITS)])
    facts = RunFacts(strategy, "edits", seed, WINDOW, max(AFTER))
    with Store.open_in_memory() as store:
        chosen = strategies.make(strategy, make_start(task, seed, max(AFTER), proposer))
        run = Search(task, chosen, proposer, Searched(launcher, seed, apart), store, Settings(facts))
        trials = list(run.run().trials)
    best, curve = math.inf, []
    for trial in trials:
        measured = trial.outcome.measurement
        best = min(best, measured.times[0].time_us if measured else math.inf)
        curve.append(best / launcher.optimum)
    return curve + curve[-1:] * (max(AFTER) - len(curve))


@click.command()
@click.option("--search", "strategy", help="A strategy that searches them, by name; else they are only tuned.")
@click.option("--draws", default=32, show_default=True, help="Launchers for each number of kernels.")
def main(draws, strategy):
    """Prints the mean and the worst distance to the optimum over launchers."""
    spaces = {name: recorded_space.read(str(HERE / f"{name}.json.xz")) for name in NAMES}
    print("| kernels | times | " + " | ".join(f"after {n}" for n in AFTER) + " |\n|---|---|" + "---|" * len(AFTER))
    for kernels in (2, 3, 5):
        for apart in (False, True):
            launchers = [Launcher(seed, kernels, spaces) for seed in range(draws)]
            curves = [
                search(one, strategy, seed, apart) if strategy else one.tune(seed, apart)
                for seed, one in enumerate(launchers)
            ]
            at = [[curve[n - 1] for curve in curves] for n in AFTER]
            cells = " | ".join(f"{statistics.fmean(c):.3f} ({max(c):.2f})" for c in at)
            print(f"| {kernels} | {'one each' if apart else 'one'} | {cells} |")


if __name__ == "__main__":
    main()
