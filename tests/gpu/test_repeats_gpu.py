"""On a GPU: an asynchronous kernel runs a hundred times more beside other work, and one that races late is rejected."""

from pathlib import Path

import pytest
import torch

from kernelsearch.core.types import Word
from kernelsearch.tasks import shipped
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.referee import verify_text
from kernelsearch.worker.gpu import repeats
from kernelsearch.worker.messages.jobs import REPEATED

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
CHEATS = Path(__file__).parents[1] / "cheats"


def test_an_honest_product_of_the_copy_engine_is_equal_a_hundred_times():
    with Bench.open(shipped.path("matmul")) as bench:
        verdict = verify_text(bench, (CHEATS / "matmul_honest_host_descriptors.py").read_text())
    assert verdict.accepted and verdict.detail[REPEATED] == repeats.COUNT


def test_a_specialised_attention_is_equal_or_a_race():
    """Such kernels of Triton 3.6 gave NaN in three of twelve forms: whichever this is, the verdict must say it."""
    with Bench.open(shipped.path("attention")) as bench:
        verdict = verify_text(bench, (CHEATS / "attention_specialised_by_triton.py").read_text())
    print(verdict)
    assert verdict.word in (Word.ACCEPT, Word.RACE, Word.WRONG, Word.TIMING)  # wrong only as it is timed
    assert not verdict.accepted or verdict.detail[REPEATED] == repeats.COUNT


def test_one_late_run_on_the_device_is_seen():
    right = torch.randn(512, 512, device="cuda")
    made = []

    def run():
        made.append(right.clone())
        if len(made) == 90:
            made[-1][511, 511] = float("nan")
        return [made[-1]]

    number, outputs = repeats.find_unequal_run(run, [right], disturb=repeats.Disturbance(1))
    assert number == 90 and outputs is not None


def test_the_disturbance_leaves_alone_what_is_queued():
    """Inputs are queued and not yet made when it begins: the memory that they free is not its own before they are."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    temporary = torch.full((repeats.NOISE_BYTES,), 7, dtype=torch.uint8, device="cuda")
    torch.cuda._sleep(200_000_000)
    kept = temporary.clone()
    address = temporary.data_ptr()
    del temporary
    disturb = repeats.Disturbance(1)
    assert disturb.buffer.data_ptr() == address
    for _ in range(20):
        disturb()
    assert bool((kept == 7).all())
