"""A tiny model learns an answer by heart, then by reward; goes on from a checkpoint; and answers as `hf:`."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from traced import grammar

from kernelsearch.core.errors import TrainError
from kernelsearch.env import Environment
from kernelsearch.propose.bandit import FULL_GAIN
from kernelsearch.propose.engines import Ask, open_engine
from kernelsearch.train.ranking import list_choices, pad_choice, weigh_answers
from kernelsearch.train.tiny import TinySize, build_tiny
from kernelsearch.train.training import TrainOptions, read_rows, train

TASK = Path(__file__).resolve().parents[2] / "studies" / "softmax" / "softmax.py"
SIZE = TinySize(vocabulary=320, hidden=64, layers=1, heads=2, context=512)
ANSWER, WORSE = "SET num_warps 8\nEND", "SET num_warps 4\nEND"

PAGE = "Make it faster.\n\nKERNEL\n  1 x = 1\n\nREADY-MADE EDITS\nEDIT exp2 1: faster\n"


@pytest.fixture
def options(tmp_path):
    row = dict(form="edit", task_file=str(TASK), parent="", system="Make it faster.", page="KERNEL\nsoftmax")
    data = tmp_path / "data"
    row |= dict(answers=[WORSE, ANSWER], gains=[None, 0.1], reasons=["wrong", ""], evidences=["", "measured"])
    (data / "pages").mkdir(parents=True)
    rows = [row, {**row, "form": "kernel"}]
    (data / "pages" / "train.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    return TrainOptions(
        "tiny",
        data,
        tmp_path / "out",
        epochs=40,
        rate=1e-2,
        steps=2,
        group=2,
        reward_rate=1e-4,
        save_every=20,
        size=SIZE,
    )


def load_weights(folder):
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def read_steps_of(out):
    return [json.loads(line) for line in (out / "rewards.jsonl").open()]


@pytest.mark.slow
def test_it_learns_resumes_and_answers(options, borrowing, tmp_path):
    said, judge = [], Environment()
    out = train(options, said.append, judge)
    assert said == ["supervised: 2 answers to 1 pages, 40 times each", "by reward: 2 steps of 2 answers, from 1 pages"]
    page = Ask("Make it faster.", "KERNEL\nsoftmax", None, temperature=0.0, max_tokens=40)
    for folder in (out / "supervised", out):
        engine = open_engine(f"hf:{folder}")
        assert engine.complete(page).samples[0].text == ANSWER
    held = replace(page, grammar=grammar("softmax").for_engine, temperature=1.0, n=2)
    assert all(s.text.endswith("END") for s in engine.complete(held).samples if s.finish == "stop")
    steps = read_steps_of(out)
    assert [s["step"] for s in steps] == [1, 2]
    for step in steps:
        assert sum(step["levels"].values()) == pytest.approx(1.0)
        assert step["levels"]["faster"] > 0 and step["reward"] > 0.0  # as the record says; judged it would be `nothing`
    supervised = (out / "supervised" / "model.safetensors").stat().st_mtime_ns
    with pytest.raises(TrainError, match="--resume continues it"):
        train(options, said.append)
    (out / "rewarded" / "model.safetensors").unlink()  # as if it had been broken off after its last checkpoint
    train(replace(options, steps=3, resume=True, recorded=True), said.append, judge)
    assert [s["step"] for s in read_steps_of(out)] == [1, 2, 3]
    assert (out / "supervised" / "model.safetensors").stat().st_mtime_ns == supervised
    fresh = replace(options, out=tmp_path / "fresh", epochs=0, steps=1, group=4)
    train(fresh, said.append, judge)
    assert read_steps_of(fresh.out)[0]["levels"]["grammar"] < 1.0  # random weights, held to the grammar
    adapted = replace(options, base=str(out / "base"), out=tmp_path / "lora", lora=True, steps=0, epochs=4)
    before, after = load_weights(out / "base"), load_weights(train(adapted, said.append))
    assert set(before) == set(after) and any(bool((before[n] != after[n]).any()) for n in before)


def test_recorded_answers_alone_are_drawn_and_none_is_judged(options):
    pages = options.data / "pages" / "train.jsonl"
    row = json.loads(pages.read_text().splitlines()[0]) | {"task_file": "gone.py"}  # judging would open it
    alike = row | {"page": "another", "answers": [ANSWER, WORSE], "gains": [None, None], "reasons": ["wrong"] * 2}
    pages.write_text("".join(json.dumps(r) + "\n" for r in (row, alike)))
    out = train(replace(options, epochs=0, steps=3, group=4, recorded=True), print)
    for step in read_steps_of(out):
        levels = step["levels"]
        assert levels["right"] + levels["faster"] == pytest.approx(1.0)  # the two answers, by random weights
        assert step["reward"] == pytest.approx(levels["faster"] * 0.1 / FULL_GAIN - 0.2 * levels["right"], abs=1e-3)


def test_what_cannot_be_trained_is_said(options, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(TrainError, match="holds something else"):
        train(replace(options, out=tmp_path / "mine"), print)
    with pytest.raises(TrainError, match="no folder with a model"):
        train(replace(options, base="org/model"), print)
    with pytest.raises(TrainError, match="kernelsearch dataset"):
        read_rows(tmp_path, "edit")


def test_a_page_is_weighed_alike_with_and_without_padding(tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    build_tiny(tmp_path, [f"{PAGE}{ANSWER}\n{WORSE}\n"] * 4, SIZE, 0)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    read = tokenizer(PAGE)["input_ids"]
    assert tokenizer.decode(read) == "READY-MADE EDITS\nEDIT exp2 1: faster\n"  # from there on
    assert tokenizer.convert_ids_to_tokens(tokenizer("EDIT exp2 1")["input_ids"])[0] == "EDITĠexp2"  # one choice
    answers = [tokenizer(text)["input_ids"] for text in (ANSWER, "EDIT exp2 1\nEND")]
    together = weigh_answers(model, pad_choice(read, answers, [1.0, 0.0], tokenizer.eos_token_id))
    alone = [weigh_answers(model, pad_choice(read, [a], [0.0], tokenizer.eos_token_id)).item() for a in answers]
    assert together.tolist() == pytest.approx(alone, abs=1e-4) and alone[0] != pytest.approx(alone[1], abs=1e-2)


def test_good_and_bad_answers_are_weighed_together_a_few_at_a_time():
    gains = [n / 100 for n in range(9)]
    page = dict(answers=list(map(str, range(9))), gains=gains, reasons=[""] * 9, evidences=["measured"] * 9)
    choices = list(list_choices(page))
    assert [answers for answers, _ in choices] == [["8", "6", "4", "2", "0"], ["7", "5", "3", "1"]]
    assert choices[0][1][0] == pytest.approx(0.08 / FULL_GAIN) and choices[0][1][-1] == 0.0
