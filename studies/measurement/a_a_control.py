"""How often the A/A interval holds 1, and how wide it is: the seed against a second copy of itself, many times.

`python studies/measurement/a_a_control.py TASK.py [--repeats 100] [--shape N] [--seconds 5]` needs a CUDA device;
seconds is what one repeat may take. Prints one line a shape.
"""

from __future__ import annotations

import argparse
import statistics
import time

from kernelsearch.measure.timing import confirm_rules as protocol
from kernelsearch.measure.timing import paired_statistics as paired
from kernelsearch.measure.timing.baselines import SEED
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.confirmation import Confirmation, ConfirmationPlan, Contestant
from kernelsearch.trial.shape_session import ShapeSession


def one_shape(confirmation: Confirmation, shape, repeats: int) -> str:
    bench, begun = confirmation.bench, time.perf_counter()
    with bench.gpu, confirmation.pool.lease() as worker:
        seed = Contestant(SEED, bench.seed, dict(bench.facts.config))
        session = ShapeSession(bench, confirmation.plan, confirmation.say, shape, [seed])
        session.open(worker)
        session.enter_kernel(session.contestants[0])
        found, times, dropped, clocks = [], [], 0, {}
        for i in range(repeats):
            session.blocks, session.edges = [], []
            session.sample((SEED,), SEED)
            kept = protocol.drop_spoiled(session.blocks, session.edges)
            dropped, clocks = dropped + kept.dropped, kept.clocks
            found.append(
                paired.bootstrap_interval([protocol.log_ratios_of(kept.blocks, protocol.CONTROL, SEED)], seed=i)
            )
            times.append(protocol.time_of(kept.blocks, SEED).time_us)
    holds = sum(f.low <= 1.0 <= f.high for f in found)
    widths = sorted(f.half_width for f in found)
    return (
        f"{bench.facts.name} {shape.label}: {statistics.median(times):.1f} us "
        f"(medians {min(times):.2f} to {max(times):.2f}); interval holds 1 in {holds} of {repeats}; "
        f"half-width median {widths[len(widths) // 2]:.3%}, "
        f"95th percentile {widths[int(0.95 * (len(widths) - 1))]:.3%}; "
        f"blocks {statistics.median(f.blocks for f in found)}, dropped {dropped}; {clocks}; "
        f"{time.perf_counter() - begun:.0f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task")
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--shape", type=int, action="append")
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    with (
        Bench.open(options.task) as bench,
        Confirmation(bench, ConfirmationPlan(seconds=options.seconds)) as confirmation,
    ):
        for i, shape in enumerate(bench.facts.shapes):
            if options.shape is None or i in options.shape:
                print(one_shape(confirmation, shape, options.repeats), flush=True)


if __name__ == "__main__":
    main()
