"""Both engines take the grammars of parents and allow the same language; answers end and pass all stages but names."""

import itertools
import random
from collections import Counter

import drawing
import numpy as np
import pytest
import tiny
import traced
from test_kernel_file import Matchers

from kernelsearch.propose.grammar import Answer
from kernelsearch.verify import gate

SAMPLES = 12
LIMIT = 768


@pytest.fixture(scope="session")
def engines():
    module = traced.engines()
    vocabulary = module.Vocabulary(tiny.tokenizer())
    return {name: make(vocabulary) for name, make in module.ENGINES.items()}


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["llguidance", "xgrammar"])
def test_sampled_answers_end_and_pass_all_but_the_names(engine, engines):
    """Of random draws one in fifty goes on beyond the limit; which ones depends on the texts that made the tokens."""
    stopped, names = 0, ("softmax", "column_sum", "attention")
    for name in names:
        grammar = traced.grammar(name)
        form, _ = engines[engine].compile(grammar.for_engine)
        rng = np.random.default_rng(len(name))
        found = Counter()
        for _ in range(SAMPLES):
            drawn = engines[engine].draw(form, rng, LIMIT)
            answer = grammar.apply(drawn.text, stopped=drawn.stopped, gate=gate.check)
            found["good" if isinstance(answer, Answer) else answer.stage] += 1
            assert found.keys() <= {"good", "names", "stopped"}, (drawn, answer)
            offered = {*grammar.page.names, *grammar.fresh}
            assert isinstance(answer, Answer) or not drawn.stopped or answer.reason.split("'")[1] in offered, answer
        assert found["good"], f"under this engine no answer for {name} gets as far as a kernel"
        stopped += found["stopped"]
    assert stopped <= len(names), stopped


@pytest.mark.parametrize("name", ["softmax_wide", "matmul"])
def test_engines_accept_what_is_drawn_and_agree_on_what_is_changed(name):
    """Both also accept, at each statement, the name that the one before has bound."""
    grammar = traced.grammar(name)
    matchers = Matchers(grammar.for_engine)
    bound = [p for p in grammar.page.places if p.target and p.indent == 4 and not p.header]
    for before, place in itertools.pairwise(bound):
        text = f"LINE {place.line}\n    {place.target} = {before.target} * 2.0\nEND"
        assert matchers.accept(text) and isinstance(grammar.apply(text, gate=gate.check), Answer), text
    assert len(bound) > 3
    for seed in range(15):
        rng = random.Random(seed)
        text = drawing.answer(grammar, rng)
        assert matchers.accept(text), text
        at = rng.randrange(len(text))
        changed = text[:at] + rng.choice("x0 (,\n") + text[at + rng.randrange(2) :]
        if matchers.accept(changed):
            assert isinstance(found := grammar.apply(changed), Answer) or found.stage == "names", changed


def test_a_model_of_random_weights_answers_within_the_grammar(tmp_path):
    """A real network in place of random logits: transformers generates under llguidance's mask."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = tiny.build(tmp_path)
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    module = traced.engines()
    grammar = traced.grammar("softmax")
    engine = module.Llguidance(module.Vocabulary(tokenizer))
    matcher, _ = engine.compile(grammar.for_engine)
    ids = tokenizer(grammar.numbered, return_tensors="pt").input_ids
    torch.manual_seed(0)
    text, cache = [], None
    for _ in range(LIMIT):
        from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask

        mask = allocate_token_bitmask(1, engine.vocabulary.size)
        fill_next_token_bitmask(matcher, mask, 0)
        allowed = np.unpackbits(mask[0].view(np.uint8), bitorder="little")[: engine.vocabulary.size].astype(bool)
        with torch.no_grad():
            out = model(ids, past_key_values=cache, use_cache=True)
        logits = out.logits[0, -1].masked_fill(~torch.from_numpy(allowed), float("-inf"))
        token = int(torch.multinomial(torch.softmax(logits, -1), 1))
        if token == tokenizer.eos_token_id:
            break
        matcher.consume_token(token)
        text.append(token)
        ids, cache = torch.tensor([[token]]), out.past_key_values
    answer = grammar.apply(tokenizer.decode(text), gate=gate.check)
    assert isinstance(answer, Answer) or answer.stage == "names", answer
