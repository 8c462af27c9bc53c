"""Sampled answers compile for sm_90 without a GPU: one of each shipped seed; `studies/grammar` has the rates."""

import random

import edit_seeds as seeds
import traced

from kernelsearch.propose.grammar import Answer

EACH = 2


def test_sampled_edits_compile():
    jobs, texts = [], []
    for name in traced.NAMES:
        grammar, found = traced.grammar(name), {}
        for seed in range(200):
            answer = grammar.apply(text := grammar.rules.sample(grammar.start, random.Random(seed)))
            if isinstance(answer, Answer) and answer.edit == "lines" and answer.kernel.digest != grammar.parent.digest:
                found[text] = answer.kernel
            if len(found) == EACH:
                break
        jobs += [{"task": name, "kernel": k.render(), "site": traced.task(name).sites[0]} for k in found.values()]
        texts += found
    answers = seeds.ask("compiler.py", jobs, interpret=False)
    failed = [f"{j['task']}\n{t}\n{a['why']}" for j, t, a in zip(jobs, texts, answers, strict=True) if not a["ok"]]
    assert len(jobs) == EACH * len(traced.NAMES)
    assert len(failed) <= 2, "\n".join(failed)
