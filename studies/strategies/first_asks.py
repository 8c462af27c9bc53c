"""What estimates of the static model save: `python studies/strategies/first_asks.py --window 16 0:0 64:8 64:8:order`.

An arm is DRAWN:ASKED. So many random configs of a recorded space are estimated, the best of them are asked for first,
then the default sampler goes on, by the estimates as far as they hold; with `:order` it forgets them.
Estimates are those of `studies/static_model/left_out.json.xz` (`table.py CACHE --estimates`): from binaries alone, with
constants fitted to kernels of other families. 0:0 is the sampler alone. Only evaluations are counted; an
arm also costs DRAWN compiles, which a search does while the seed is evaluated.
"""

import json
import lzma
import random
import sys
from pathlib import Path

import click
from table import printed

from kernelsearch.core.types import SAMPLER, config_key

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from recorded import simulation

HERE = Path(__file__).parent
SPACES = HERE.parent / "spaces"
ESTIMATES = HERE.parent / "static_model" / "left_out.json.xz"


def estimates():
    """Estimated microseconds by space and config; what does not compile has none."""
    told = json.loads(lzma.decompress(ESTIMATES.read_bytes()))
    return {
        name: {config_key(dict(zip(one["names"], values, strict=True))): us for values, us in one["rows"]}
        for name, one in told.items()
    }


def estimated(space, known, drawn, seed):
    """Of `drawn` random configs those that compile with their estimates, the least first."""
    configs = [row.config for row in space.rows]
    some = random.Random(f"{seed}/drawn").sample(configs, min(drawn, len(configs)))
    compiled = [(c, known[config_key(c)]) for c in some if config_key(c) in known]
    return sorted(compiled, key=lambda one: one[1])


@click.command()
@click.argument("arms", nargs=-1, required=True)
@click.option("--seeds", default=8, show_default=True)
@click.option("--first", default=0, show_default=True, help="The first seed.")
@click.option("--window", default=1, show_default=True)
def main(arms, seeds, first, window):
    """Prints median evaluations to 2 % and the score against random search, a column a space."""
    known, paths = estimates(), sorted(SPACES.glob("*.json.xz"))

    def run(arm, name, space, most, seed):
        drawn, asked, *order = arm.split(":")
        told = estimated(space, known[name], int(drawn), seed)
        first = [config for config, _ in told[: int(asked)]]
        return simulation.simulate(
            space, SAMPLER, most, seed, window=window, first=first, estimates=() if order else told
        )

    printed("drawn:asked", arms, paths, range(first, first + seeds), run)


if __name__ == "__main__":
    main()
