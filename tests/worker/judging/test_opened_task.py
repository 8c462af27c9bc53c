"""Right answers of timed shapes stay in the GPU's memory while there is room for the runs that they judge; what was
accepted bit for bit is not judged again."""

from types import SimpleNamespace

import pytest
import torch

from kernelsearch.core.types import Verdict, Word
from kernelsearch.worker.judging import opened_task
from kernelsearch.worker.judging.opened_task import ANSWER_ROOM, OpenedTask
from kernelsearch.worker.messages.jobs import JudgedCase

BYTES = 4000
CASES = [JudgedCase(f"timed:{i}", "randn", i) for i in range(2)]


@pytest.fixture
def gpu(monkeypatch):
    """A GPU's memory as the judge sees it; each right answer takes five times its inputs."""
    memory = SimpleNamespace(total=100 * BYTES, others=0, opened=None)

    def kept():
        return 5 * BYTES * len(memory.opened._timed)

    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (memory.total - memory.others - kept(), memory.total))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: kept() + 5 * BYTES)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(opened_task, "read_device_memory", lambda: memory.total)
    built = SimpleNamespace(inputs=[torch.zeros(BYTES // 4)])
    expected = SimpleNamespace(outputs=[SimpleNamespace(shape=(BYTES // 4,), dtype=torch.float32)])
    memory.opened = OpenedTask(SimpleNamespace(build=lambda *a: built, mutates=()), None, None, "cuda", {})
    memory.opened._expect_timed = lambda *a: expected
    return memory


def test_answers_stay_as_long_as_there_is_room(gpu):
    for case in CASES:
        gpu.opened.load_timed(case)
    assert set(CASES) == set(gpu.opened._timed)


def test_where_others_need_the_memory_nothing_stays(gpu):
    gpu.others = gpu.total - (ANSWER_ROOM + 1) * BYTES + 5 * BYTES
    gpu.opened.load_timed(CASES[0])
    assert not gpu.opened._timed


def test_an_answer_that_another_shape_has_no_room_beside_is_dropped(gpu):
    gpu.opened.load_timed(CASES[0])
    gpu.others = gpu.total - 16 * BYTES
    gpu.opened.load_timed(CASES[1])
    assert list(gpu.opened._timed) == [CASES[1]]


@pytest.mark.parametrize("stays", [True, False])
def test_bits_that_were_accepted_are_known_again_at_their_own_inputs_only(gpu, stays):
    if not stays:
        gpu.others = gpu.total - (ANSWER_ROOM + 1) * BYTES + 5 * BYTES
    gpu.opened.load_timed(CASES[0])
    assert (CASES[0] in gpu.opened._timed) is stays
    outputs, inputs = [torch.arange(12.0).reshape(3, 4)], [torch.zeros(BYTES // 4)]

    def find(case, outputs, inputs):
        return gpu.opened.find_accepted(gpu.opened.mark_bits(case, outputs), inputs)

    assert find(CASES[0], outputs, inputs) is None
    gpu.opened.keep_accepted(gpu.opened.mark_bits(CASES[0], outputs), Verdict(Word.ACCEPT, "judge", error_ratio=0.5))
    assert find(CASES[0], [outputs[0].clone()], inputs).error_ratio == 0.5
    assert find(CASES[1], outputs, inputs) is None
    assert find(CASES[0], [-outputs[0]], inputs) is None
    assert find(CASES[0], outputs, [inputs[0].clone().index_fill_(0, torch.tensor(7), 1.0)]) is None
