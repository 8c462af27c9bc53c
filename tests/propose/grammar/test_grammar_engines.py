"""Both engines take the grammars, allow the same language as the rules, and sample answers that pass every stage."""

import random

import numpy as np
import pytest
import tiny
import traced

from kernelsearch.propose.grammar import Answer
from kernelsearch.verify import gate

SAMPLES = 4
LIMIT = 512


@pytest.fixture(scope="session")
def engines():
    module = traced.engines()
    vocabulary = module.Vocabulary(tiny.tokenizer())
    return {name: make(vocabulary) for name, make in module.ENGINES.items()}


@pytest.mark.parametrize("engine", ["llguidance", "xgrammar"])
@pytest.mark.parametrize("name", traced.NAMES)
def test_sampled_answers_pass_every_stage(name, engine, engines):
    grammar = traced.grammar(name)
    form, _ = engines[engine].compile(grammar)
    rng = np.random.default_rng(len(name))
    for _ in range(SAMPLES):
        drawn = engines[engine].draw(form, rng, LIMIT)
        answer = grammar.apply(drawn.text, stopped=drawn.stopped, gate=gate.check)
        assert isinstance(answer, Answer), (drawn, answer)


@pytest.mark.parametrize("name", ["softmax_wide", "matmul"])
def test_engines_accept_what_the_rules_give(name, engines):
    """A text is in the languages of the rules, of llguidance's Lark and of xgrammar's EBNF, or in none of them."""
    import xgrammar
    from llguidance import LLMatcher

    grammar = traced.grammar(name)
    lark, ebnf = engines["llguidance"].compile(grammar)[0], engines["xgrammar"].compile(grammar)[0]
    tokens = engines["llguidance"].tokenizer

    def accepted(text):
        matcher = lark.deep_copy()
        ids = tokens.tokenize_str(text)
        guidance = matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()
        other = xgrammar.GrammarMatcher(ebnf, terminate_without_stop_token=True)
        return guidance, other.accept_string(text) and other.is_terminated()

    assert isinstance(lark, LLMatcher)
    for seed in range(15):
        rng = random.Random(seed)
        text = grammar.rules.sample(grammar.start, rng)
        assert accepted(text) == (True, True), text
        at = rng.randrange(len(text))
        changed = text[:at] + rng.choice("x0 (,\n") + text[at + rng.randrange(2) :]
        assert accepted(changed) == (grammar.accepts(changed),) * 2, changed


def test_a_model_of_random_weights_answers_within_the_grammar(tmp_path):
    """A real network in place of random logits: transformers generates under llguidance's mask."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = tiny.build(tmp_path)
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    module = traced.engines()
    grammar = traced.grammar("softmax")
    engine = module.Llguidance(module.Vocabulary(tokenizer))
    matcher, _ = engine.compile(grammar)
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
    assert isinstance(answer, Answer), answer
