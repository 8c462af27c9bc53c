"""Descriptors that a launcher passes, and those of a kernel's own, through the whole system without a GPU."""

import pytest

from described_task import OWN, PASSED
from kernelsearch.core.types import Word
from kernelsearch.kernel.source import Kernel
from kernelsearch.trial import Evaluation
from kernelsearch.trial.bench import Bench


@pytest.mark.slow
def test_descriptors_of_the_host_are_judged_and_estimated_without_a_gpu(tmp_path):
    path = tmp_path / "passed.py"
    path.write_text(PASSED)
    with Bench.open(path, "h100") as bench:
        first = bench.facts.shapes[0].key
        evaluation = Evaluation(bench, (first,))
        own = Kernel.parse(f"DESCRIPTORS = {{{OWN}}}\n" + bench.seed.code)
        for kernel, config in ((bench.seed, {"BM": 128}), (own, {"BM": 32, "BN": 64})):
            config = {**bench.facts.config, **config}
            verdict = evaluation.verify(kernel, config)
            assert verdict.accepted and verdict.depth == "full", verdict
            ((fact, bound),) = bench.bind_launches(kernel, config, (first,))
            blocks = [kind for _, kind in bound.specialise_steps(fact)[0].signature[:3]]
            assert blocks == [
                f"tensordesc<bf16[{config[m]}, {config[n]}]>" for m, n in (("BM", "BK"), ("BK", "BN"), ("BM", "BN"))
            ]
        short = Kernel.parse(own.render().replace("shape(a_desc, 1))", "shape(a_desc, 1) - 8)"))
        assert short.digest != own.digest and evaluation.verify(short, config).word is Word.WRONG
        beyond = Kernel.parse(own.render().replace("(shape(c_desc, 0),", "(shape(c_desc, 0) + 1,"))
        assert beyond.digest != own.digest and "beyond the end of" in str(evaluation.verify(beyond, config))
