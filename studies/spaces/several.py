"""A table of studies/spaces/README.md: several recorded kernels as one launcher, tuned by one time or one each.

python studies/spaces/several.py --draws 32
"""

import math
import random
import statistics
from pathlib import Path

import click

from kernelsearch.core.types import config_key
from kernelsearch.kernel.space import Space
from kernelsearch.record import recorded_space
from kernelsearch.tune.block_models import BlockModels
from kernelsearch.tune.blocks import NameBlock
from kernelsearch.tune.tuner import Tuner

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


@click.command()
@click.option("--draws", default=32, show_default=True, help="Launchers for each number of kernels.")
def main(draws):
    """Prints the mean and the worst distance to the optimum over launchers."""
    spaces = {name: recorded_space.read(str(HERE / f"{name}.json.xz")) for name in NAMES}
    print("| kernels | times | " + " | ".join(f"after {n}" for n in AFTER) + " |\n|---|---|" + "---|" * len(AFTER))
    for kernels in (2, 3, 5):
        for apart in (False, True):
            curves = [Launcher(seed, kernels, spaces).tune(seed, apart) for seed in range(draws)]
            at = [[curve[n - 1] for curve in curves] for n in AFTER]
            cells = " | ".join(f"{statistics.fmean(c):.3f} ({max(c):.2f})" for c in at)
            print(f"| {kernels} | {'one each' if apart else 'one'} | {cells} |")


if __name__ == "__main__":
    main()
