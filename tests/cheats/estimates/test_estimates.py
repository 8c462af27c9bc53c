"""Right kernels that do less where programs are counted: their estimated time is no better than the honest seed's."""

from pathlib import Path

import pytest

from kernelsearch.kernel.source import Kernel
from kernelsearch.trial import Evaluation, referee
from kernelsearch.trial.bench import Bench

HERE = Path(__file__).resolve().parent
STUDIES = HERE.parents[2] / "studies"
FILES = sorted(p for p in HERE.glob("*.py") if not p.name.startswith("test_"))
SLACK = 0.9
"""A cheat has instructions of its own, and other programs are drawn for it: where the last tile is among them, the counts of equal work differ."""


def task_of(path):
    return path.read_text().splitlines()[0].removeprefix("# task: ")


def counts(bench, kernel, config):
    """What the programs of each timed shape load, compute and multiply, by shape."""
    evaluation = Evaluation(bench)
    found = evaluation.stages.profile(evaluation.bind(kernel, config)).counts
    return {s: (sum(c.load_bytes for c in cs), sum(c.special for c in cs), sum(sum(c.flops_dot.values()) for c in cs))
            for s, cs in found.items()}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_a_right_kernel_cannot_look_faster_by_idling_where_it_is_counted(path, borrowing):
    with Bench.open(STUDIES / task_of(path) / f"{task_of(path)}.py") as bench:
        kernel = Kernel.parse(path.read_text())
        config = referee.config_of(kernel, bench.facts)
        cheat, honest = counts(bench, kernel, config), counts(bench, bench.seed, config)
    for shape, right in honest.items():
        for made, wanted in zip(cheat[shape], right, strict=True):
            assert made >= SLACK * wanted, (shape, cheat[shape], right)
