"""Whole-kernel answers: how they are read, what goes back to the model, what the page holds, how they are tuned."""

import math
import random
from dataclasses import replace

import edit_seeds
import pytest
from scripted import Scripted, shared, trial
from searching import BUDGET, SEED, searched, story, task

from kernelsearch.core.types import Hint, Word, is_whole_kernel
from kernelsearch.kernel.source import Kernel
from kernelsearch.propose import proposers
from kernelsearch.propose.contract import Request
from kernelsearch.propose.engines import CUT, Failure, Reply, Sample
from kernelsearch.propose.grammar import WholeKernel
from kernelsearch.propose.mix import ProposerMix, RunLimits
from kernelsearch.propose.models import kernel_page, prompt
from kernelsearch.propose.models.answers import check_answer
from kernelsearch.propose.models.model import ModelProposer
from kernelsearch.propose.models.sections import TooLong
from kernelsearch.propose.models.shared import WHOLE_KERNELS
from kernelsearch.record.store import Store
from kernelsearch.trial import referee
from kernelsearch.verify import gate

FILE = '''"""Split the rows over programs and add the parts in a second kernel."""

import triton
import triton.language as tl

GRID = {"column_sum_kernel": "(cdiv(n_cols, BLOCK), SPLIT)", "add_parts": "(cdiv(n_cols, BLOCK),)"}
SCRATCH = {"part_ptr": ("float32", "(SPLIT, n_cols)")}
LAUNCHES = ["column_sum_kernel", "add_parts"]
SPACE = {"BLOCK": [32, 64], "SPLIT": [8, 16, 32], "num_warps": [2, 4]}
CONFIG = {"BLOCK": 64, "SPLIT": 16, "num_warps": 4}


@triton.jit
def column_sum_kernel(x_ptr, part_ptr, x_stride, n_rows, n_cols, BLOCK: tl.constexpr, SPLIT: tl.constexpr):
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for row in range(tl.program_id(1), n_rows, SPLIT):
        total += tl.load(x_ptr + row * x_stride + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    tl.store(part_ptr + tl.program_id(1) * n_cols + cols, total, mask=cols < n_cols)


@triton.jit
def add_parts(part_ptr, y_ptr, n_cols, BLOCK: tl.constexpr, SPLIT: tl.constexpr):
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for part in range(SPLIT):
        total += tl.load(part_ptr + part * n_cols + cols, mask=cols < n_cols, other=0.0)
    tl.store(y_ptr + cols, total.to(y_ptr.dtype.element_ty), mask=cols < n_cols)
'''
OTHER_NAME = """import triton
import triton.language as tl


@triton.jit
def my_sum(x_ptr, y_ptr, x_stride, n_rows, n_cols, BLOCK_ROWS: tl.constexpr, BLOCK_COLS: tl.constexpr):
    cols = tl.program_id(0) * BLOCK_COLS + tl.arange(0, BLOCK_COLS)
    total = tl.zeros([BLOCK_COLS], dtype=tl.float32)
    for row in range(0, n_rows):
        total += tl.load(x_ptr + row * x_stride + cols, mask=cols < n_cols, other=0.0)
    tl.store(y_ptr + cols, total, mask=cols < n_cols)
"""
HOST = FILE + "\n\ndef column_sum(x):\n    import torch\n    return torch.sum(x, 0)\n"


def fenced(text, mark="```"):
    return f"{mark}python\n{text}{mark}"


@pytest.fixture(scope="module")
def form():
    return WholeKernel(SEED, ("column_sum_kernel",))


def read(form, text, finish="stop", seen=()):
    return check_answer(Sample(text, finish), form, gate.check, seen)


# ---------------------------------------------------------------- reading


@pytest.mark.parametrize("text", [
    FILE, fenced(FILE), f"\n{fenced(FILE)}\n", fenced(FILE, "~~~"), f"Sure! Here it is:\n\n{fenced(FILE)}\n\nEnjoy.",
    f"<think>maybe\n{fenced(OTHER_NAME)}\nno</think>\n{fenced(FILE)}", f"maybe this? no.</think>{fenced(FILE)}",
    f"First a draft:\n{fenced(OTHER_NAME)}\nbetter:\n{fenced(FILE)}\nit needs\n```sh\npip install x\n```",
    "Indented:\n" + "\n".join(f"  {line}" for line in fenced(FILE).split("\n")),
    fenced(FILE.replace("\n", "\r\n")), f"Thinking aloud first.\n{FILE[FILE.index('import'):]}", fenced(FILE)[:-3],
])  # fmt: skip
def test_a_whole_kernel_is_found_whatever_stands_around_it(form, text):
    found = read(form, text)
    assert found.good, (found.stage, found.reason)
    assert found.answer.kernel.digest == Kernel.parse(FILE).digest
    assert found.answer.kernel.space["SPLIT"] == (8, 16, 32) and found.answer.kernel.config["SPLIT"] == 16


def test_its_docstring_says_why(form):
    assert read(form, fenced(FILE)).answer.why.startswith("Split the rows over programs")


def test_one_kernel_of_another_name_takes_the_place_of_the_tasks_own(form):
    kernel = read(form, fenced(OTHER_NAME)).answer.kernel
    assert kernel.steps_at("column_sum_kernel", ("column_sum_kernel",)) == ("my_sum",)
    two = WholeKernel(SEED, ("column_sum_kernel", "another"))
    refused = read(two, fenced(OTHER_NAME))
    assert refused.stage == "names" and "column_sum_kernel or another" in refused.reason and "my_sum" in refused.reason


@pytest.mark.parametrize("text, stage, said", [
    ("I cannot do that.", "grammar", "no kernel file"), ("```python\nx = 1\n```", "grammar", "no kernel file"),
    (fenced(FILE.replace("for part in", "for part of")), "parses", "line 26"),
    (fenced(FILE.replace("SPACE = {", "SPACE = dict(x=")), "parses", "not Python"),
    (fenced(HOST), "gate", "at `def column_sum(x):`"),
    (fenced("import os\n" + FILE), "gate", "at `import os`"),
    (fenced(FILE.replace("tl.zeros", "tl.zeroes")), "gate", "zeroes"), ("", "stopped", "empty"),
    ("<think>endless", "grammar", "no kernel file"), (fenced(SEED.render()), "new", "the parent again"),
])  # fmt: skip
def test_a_refusal_names_stage_line_and_reason(form, text, stage, said):
    found = read(form, text)
    assert found.stage == stage and said in found.reason, (found.stage, found.reason)


def test_an_answer_that_is_cut_counts_only_if_its_kernel_was_whole(form):
    cut = read(form, fenced(FILE)[:-200], CUT)
    assert cut.stage == "stopped" and "cut short" in cut.reason
    assert read(form, f"{fenced(FILE)}\nThis is because", CUT).good
    assert read(form, "", CUT).reason == "an empty answer (length)"


@pytest.mark.parametrize("text", ["`" * 5000, "```\n" * 3000, "<think>" * 4000, "@triton.jit\n" * 3000 + "```", "\0"])
def test_hostile_answers_are_refused_and_nothing_else_happens(form, text):
    assert not read(form, text).good


def test_thinking_before_an_edit_is_thrown_away_too():
    from kernelsearch.propose.grammar import build_grammar

    grammar = build_grammar(edit_seeds.seed("softmax"), edit_seeds.task("softmax"))
    edit = "LINE 12\n    numerator = tl.exp2(x)\nEND"
    for text in (
        f"<think>hm\nLINE 3</think>\n{edit}",
        f"Here:\n```\n{edit}\n```",
        f"```\nLINE 1\n```\nor\n```\n{edit}\n```",
    ):
        assert check_answer(Sample(text), grammar, gate.check).good, text


# ---------------------------------------------------------------- the conversation


def whole(answer, models=None, **settings):
    return ModelProposer(
        answer if hasattr(answer, "complete") else Scripted(answer), models or shared(),
        replace(WHOLE_KERNELS, **settings), whole=True,
    )  # fmt: skip


def ask_of(number=1, **fields):
    return Request(SEED, task(), number=number, **fields)


def rng(seed=0):
    return random.Random(seed)


def begun(answers, **settings):
    said = list(answers)
    model = whole(lambda ask: said.pop(0), **settings)
    model.models.history.tell(trial(0, SEED.digest, 1.0), SEED, None)
    return model


def test_a_whole_kernel_becomes_a_rewrite_with_its_own_reason():
    model = begun([fenced(FILE)])
    made = model.propose(ask_of(), rng())
    assert made.edit == "kernel:scripted" and is_whole_kernel(made.edit) and made.rationale.startswith("Split the rows")
    (sent,) = model.engine.asks
    assert (
        sent.grammar is WholeKernel.of_task(SEED, task()).for_engine
        and sent.n == 1
        and sent.max_tokens == 16_000
        and not sent.turns
    )


def test_what_is_refused_here_goes_back_as_the_next_turn_with_line_and_reason():
    model = begun([f"<think>long thoughts</think>{fenced(HOST)}", "I give up.", fenced(FILE)])
    assert model.propose(ask_of(1), rng(1)) is None and model.can_repair(2)
    assert model.repair(ask_of(2), rng(2)) is None
    made = model.repair(ask_of(3), rng(3))
    first, second, third = model.engine.asks
    assert first.page == second.page == third.page and [len(a.turns) for a in (first, second, third)] == [0, 1, 2]
    answer, said = second.turns[0]
    assert "def column_sum(x)" in answer and "long thoughts" not in answer and "at `def column_sum(x):`" in said
    assert "no kernel file" in third.turns[1][1] and third.messages[-1]["role"] == "user"
    assert made.edit == "kernel-repair:scripted" and made.parent == SEED.digest
    calls = model.models.ledger.calls
    assert [bool(c.follows) for c in calls] == [False, True, True] and calls[2].page == third.text


def test_what_the_referee_refuses_goes_back_in_the_same_conversation():
    model = begun([fenced(FILE), fenced(OTHER_NAME)])
    made = model.propose(ask_of(1), rng(1))
    refused = trial(1, made.kernel.digest, None, made.edit, word=Word.WRONG, reason="too far off", index=[3],
                    regime="large", expected=0.5, got=0.25, parent=SEED.digest)  # fmt: skip
    model.models.history.tell(refused, made.kernel, SEED.digest)
    model.tell(refused)
    assert model.can_repair(2) and model.repair(ask_of(2), rng(2)) is not None
    ((_, said),) = model.engine.asks[1].turns
    assert "too far off" in said and "expected 0.5, got 0.25" in said and "whole corrected kernel file" in said


def test_a_conversation_has_four_rounds():
    model = begun([fenced(HOST).replace("column_sum(x)", f"column_sum{n}(x)") for n in range(9)])
    model.propose(ask_of(1), rng(1))
    rounds = 1
    while model.can_repair(rounds + 1) and rounds < 9:
        model.repair(ask_of(rounds + 1), rng(rounds))
        rounds += 1
    assert rounds == 4


def test_an_empty_answer_is_not_sent_back():
    model = begun([Reply((Sample("", "length"),), 10, 16_000)])
    assert model.propose(ask_of(1), rng(1)) is None and not model.can_repair(2)
    assert model.models.ledger.calls[0].answers[0].reason == "an empty answer (length)"


def test_a_small_context_cuts_the_page_and_the_answer():
    def answer(ask):
        if ask.max_tokens + len(ask.plain) // 3 > 12_000:
            return Failure("400: maximum context length is 12000 tokens", "context", 12_000)
        return fenced(FILE)

    model = whole(answer)
    assert model.propose(ask_of(), rng()) is not None
    assert model.engine.asks[-1].max_tokens == 6000 and model.health.page_tokens <= 6000


# ---------------------------------------------------------------- the page


def page(**fields):
    facts = replace(task(), path=str(edit_seeds.ROOT / "studies" / "column_sum" / "column_sum.py"))
    return prompt.PromptPage(WholeKernel(SEED, facts.sites), facts, shared().device, **fields)


def count(text):
    return len(text) // 3


def test_the_page_has_the_task_the_machine_the_kernel_and_how_a_file_is_written():
    hints = (
        Hint("occupancy", {"programs": 32.0}, "split_reduction: share each long reduction among several programs"),
    )
    text = kernel_page.write_page(page(hints=hints, children=("gained 3 %: fewer warps",)), count, 24_000).text
    for part in ("def reference(x):", "column_sum_kernel[grid](x, y,", "132 SMs", "65536 reg",
                 "L2 of 50 MiB", "share each long", "gained 3 %", "IEEE", "tl.zeros([BLOCK_COLS]"):  # fmt: skip
        assert part in text, part
    assert text.count("def column_sum_kernel(") == 1 and "LEFT OUT" not in text
    assert "SCRATCH = " in kernel_page.system() and "add_parts" in kernel_page.system()


def test_resources_of_the_parent_are_on_the_page():
    launches = [dict(kernel="k", programs=32, programs_per_sm=4, num_warps=8, registers=40, stack_bytes=16,
                     shared_bytes=512, load_bytes=4.0, limiter="programs")]  # fmt: skip
    best = trial(0, SEED.digest, 1.0)
    measured = best.outcome.measurement
    times = (replace(measured.times[0], detail={"launches": launches}),)
    best = replace(best, outcome=replace(best.outcome, measurement=replace(measured, times=times)))
    text = kernel_page.write_page(page(trial=best), count, 24_000).text
    assert "k: 32 programs of 8 warps, 4 at once on an SM, limited by programs" in text
    assert "40 registers and 16 spilled bytes" in text and "512 bytes of shared memory" in text
    times = (replace(times[0], detail={"launches": launches, "parts_us": {"k": 12.345, "other": 1.0}}),)
    best = replace(best, outcome=replace(best.outcome, measurement=replace(measured, times=times)))
    assert "k: 12.35 us by itself, 32 programs" in kernel_page.write_page(page(trial=best), count, 24_000).text


def test_what_does_not_fit_is_left_out_by_worth_and_said():
    many = page(children=tuple(f"gained {n} %: idea {n}" for n in range(500)), others=("x\n" * 900,))
    for budget in (2400, 3000, 4000):
        text = kernel_page.write_page(many, count, budget).text
        assert count(text) + count(kernel_page.system()) <= budget
        assert "LEFT OUT FOR WANT OF ROOM" in text and "1 of 1 under OTHER KERNELS" in text and "DO THIS" in text
    assert "def reference(x):" in text and "idea 0" in text and "of 500 under WHAT WAS TRIED FROM HERE" in text
    with pytest.raises(TooLong):
        kernel_page.write_page(many, count, 1500)


def test_other_kernels_on_the_page_differ_from_the_parent_and_from_each_other():
    model = begun([])
    history = model.models.history
    twin = SEED.with_changes(constants=("JUNK = tl.constexpr(1)",))
    for n, (kernel, score) in enumerate([(Kernel.parse(FILE), 0.5), (twin, 0.4), (Kernel.parse(OTHER_NAME), 0.7)], 1):
        history.tell(trial(n, kernel.digest, score, "kernel:x", f"idea {n}"), kernel, SEED.digest)
    chosen = kernel_page.choose_others(history, SEED.digest)
    assert [e.action for e in chosen] == ["idea 1", "idea 3"]
    assert "2.00x the seed: idea 1" in kernel_page.show_kernel(chosen[0])


# ---------------------------------------------------------------- in a search


def test_both_forms_are_two_arms_of_one_engine():
    opened = Scripted(lambda ask: "no")
    for answers, names in (("both", ["kernel:scripted", "model:scripted"]), ("edit", ["model:scripted"])):
        opened.answers = answers
        options = proposers.ModelOptions(models=("replay:x",))
        made = proposers.open_proposer(options, shared().device, RunLimits(), print, make=lambda spec: opened)
        assert [m.name for m in made.models] == names


def test_a_whole_kernel_earns_nothing_by_being_tuned_longer_than_its_parent():
    """At a config that both have had it is as fast; what its tuning then gains is what any tuning does."""
    history, twin = begun([]).models.history, Kernel.parse(FILE)
    for number, (score, config) in enumerate(((1.4, {"num_warps": 1}), (1.0, {}), (0.7, {"num_warps": 2})), 1):
        told = replace(trial(number, twin.digest, score, "kernel:x", "why"), config=config)
        history.tell(told, twin, SEED.digest)
    entry = history.get(twin.digest)
    assert history.count_judged(entry) == 2
    assert history.earned_gain(entry, math.log(1 / 0.7)) == pytest.approx(0.0)
    assert history.earned_gain(entry, 0.0) == pytest.approx(math.log(1 / 0.7))


def test_a_whole_kernel_with_configs_of_its_own_is_compared_with_its_parent_after_the_usual_tuning():
    history, kernel = begun([]).models.history, Kernel.parse(FILE)
    for number, score in ((1, 1.4), (2, 0.7), (3, 0.5)):
        told = replace(trial(number, kernel.digest, score, "kernel:x", "why"), config={"OWN": number})
        history.tell(told, kernel, SEED.digest)
    entry = history.get(kernel.digest)
    assert history.count_judged(entry) == 3
    assert history.earned_gain(entry, 0.0) == pytest.approx(math.log(2))
    assert history.earned_gain(entry, math.log(1.25)) == pytest.approx(math.log(2 / 1.25))  # the seed was not tuned yet


def test_its_space_is_what_is_tuned_before_it_is_judged_against_others():
    said = {"n": 0}

    def answer(ask):
        said["n"] += 1
        return fenced(FILE) if said["n"] == 1 else "no"

    models = shared()
    proposer = ProposerMix([whole(answer, models)], models, RunLimits(BUDGET), alone=True)
    with Store.open_in_memory() as store:
        result, _ = searched(proposer, store, BUDGET)
    digest = Kernel.parse(FILE).digest
    tried = [dict(t.config) for t in result.trials if t.kernel == digest]
    assert tried[0] == {"BLOCK": 64, "SPLIT": 16, "num_warps": 4} and len(tried) >= 6
    assert all(set(c) == {"BLOCK", "SPLIT", "num_warps"} for c in tried)
    assert {c["SPLIT"] for c in tried} <= {8, 16, 32} and len({c["SPLIT"] for c in tried}) > 1


def answers_in_turn(ask):
    """Kernels that differ, some of which are refused: a function of the ask."""
    name = f"C{ask.seed % 97} = tl.constexpr(1)\n"
    text = FILE.replace("\n\n@triton.jit\ndef column", f"\n{name}\n\n@triton.jit\ndef column", 1)
    return fenced(text + "\nimport os\n" * (ask.seed % 3 == 0))


@pytest.mark.parametrize("stop", [3, 13])
def test_a_resumed_run_of_whole_kernels_is_the_unbroken_one(tmp_path, stop):
    def made():
        models = shared()
        engine = Scripted(answers_in_turn)
        return ProposerMix([whole(engine, models)], models, RunLimits(BUDGET)), engine

    unbroken, engine = made()
    with Store.open_in_memory() as store:
        expected, _ = searched(unbroken, store, BUDGET)
    with Store.open(tmp_path / "a.db") as store:
        first, early = made()
        searched(first, store, stop)
        again, late = made()
        resumed, _ = searched(again, store, BUDGET, store.load_runs()[0])
    assert story(resumed) == story(expected)
    assert any(a.turns for a in engine.asks) and len(early.asks) + len(late.asks) == len(engine.asks)


def test_what_a_file_computes_is_not_taken_from_the_task():
    """A row that is one tile for every size: BLOCK is the launcher's constexpr, and the file computes its own."""
    computed = FILE.replace(
        "SCRATCH =", 'ARGS = {"column_sum_kernel": {"BLOCK": "next_power_of_2(n_cols)"}}\nSCRATCH ='
    )
    computed = computed.replace('"BLOCK": [32, 64], ', "").replace('"BLOCK": 64, ', "")
    facts = replace(task(), config={"BLOCK": 32, "num_warps": 2}, space={"BLOCK": (32, 64), "num_warps": (2, 4)})
    assert "BLOCK" not in referee.config_of(Kernel.parse(computed), facts)
    plain = FILE.replace('"BLOCK": [32, 64], ', "").replace('"BLOCK": 64, ', "")
    assert referee.config_of(Kernel.parse(plain), facts)["BLOCK"] == 32
