"""Does the confirmed protocol rank near-equal configs the same way each time? Ten configs of one kernel, five times.

`python studies/measurement/ranking.py TASK.py [--configs 10] [--repeats 5] [--seconds 3]` needs a CUDA device. The
configs are those of the task's space that the search protocol times nearest to the best; each repeat is a fresh process
with seeds of its own. Prints each repeat's winner and how far it is from the best of all repeats taken together.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import product

from kernelsearch.measure.timing import confirm_rules as protocol
from kernelsearch.trial import Evaluation
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.confirmation import Confirmation, ConfirmationPlan, Contestant
from kernelsearch.trial.shape_session import ShapeSession


def near_equal(bench: Bench, shape: str, count: int) -> list[Contestant]:
    """The configs of the space that are nearest to the fastest, by the search's own protocol."""
    space = bench.facts.space
    configs = [dict(zip(space, values, strict=True)) for values in product(*space.values())]
    evaluation = Evaluation(bench, (shape,))
    first = evaluation.evaluate(bench.seed, dict(bench.facts.config)).measurement
    with ThreadPoolExecutor(16) as pool:
        outcomes = list(pool.map(lambda c: evaluation.evaluate(bench.seed, c, first), configs))
    timed = [(o.measurement.time_us(shape), c) for o, c in zip(outcomes, configs, strict=True)
             if o.measurement and not o.measurement.abandoned]  # fmt: skip
    timed.sort(key=lambda pair: pair[0])
    return [Contestant(",".join(f"{k}={v}" for k, v in c.items()), bench.seed, c) for _, c in timed[:count]]


def logs_of(confirmation: Confirmation, shape, contestants: list[Contestant]) -> dict[str, list[float]]:
    """Each config's log-ratios to the first one, block by block, from a fresh process."""
    first = contestants[0].name
    with confirmation.bench.gpu, confirmation.pool.lease() as worker:
        session = ShapeSession(confirmation.bench, confirmation.plan, lambda text: None, shape, contestants)
        session.open(worker)
        for one in session.contestants:
            session.enter_kernel(one)
        session.sample(tuple(session.pilot), first)
    blocks = protocol.drop_spoiled(session.blocks, session.edges).blocks
    return {c.name: protocol.log_ratios_of(blocks, c.name, first) for c in contestants if c.name in session.pilot}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task")
    parser.add_argument("--configs", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    begun = time.perf_counter()
    with Bench.open(options.task) as bench:
        shape = bench.facts.shapes[0]
        contestants = near_equal(bench, shape.key, options.configs)
        repeats = []
        for _ in range(options.repeats):
            with Confirmation(bench, ConfirmationPlan(options.seconds)) as confirmation:
                repeats.append(logs_of(confirmation, shape, contestants))
    pooled = {name: statistics.median([x for r in repeats for x in r[name]]) for name in repeats[0]}
    best = max(pooled, key=pooled.get)
    print(f"{bench.facts.name} {shape.label}: {len(pooled)} configs within "
          f"{math.expm1(max(pooled.values()) - min(pooled.values())):.2%} of each other")  # fmt: skip
    for number, repeat in enumerate(repeats, 1):
        medians = {name: statistics.median(logs) for name, logs in repeat.items()}
        winner = max(medians, key=medians.get)
        print(f"  {number}: {winner}, {math.expm1(pooled[best] - pooled[winner]):.3%} from the best, "
              f"{len(repeat[winner])} blocks")  # fmt: skip
    print(f"  all together: {best}; {time.perf_counter() - begun:.0f} s")


if __name__ == "__main__":
    main()
