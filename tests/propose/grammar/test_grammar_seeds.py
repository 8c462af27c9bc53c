"""The grammars of parents: what is drawn ends, parses and passes the gate, whatever it means."""

import ast
import random
from collections import Counter
from itertools import islice

import drawing
import edit_seeds as seeds
import pytest
import traced

from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.analysis import tree
from kernelsearch.propose.edits import EDITS, NotApplicable
from kernelsearch.propose.grammar import Answer, NoGrammar, build_grammar
from kernelsearch.propose.grammar.answer import parse
from kernelsearch.verify import gate


def follow(grammar, draws):
    """(the accepted answers' first words, names that accepted lines read); refused is only a name of the parent's."""
    words, read = Counter(), set()
    for seed in range(draws):
        text = drawing.answer(grammar, random.Random(seed))
        answer = grammar.apply(text, gate=gate.check)
        assert len(text) < 2000, text
        if isinstance(answer, Answer):
            assert answer.kernel.names == grammar.parent.names, text
            words[text.split(" ")[0]] += 1
            lines = [line.strip() for change in parse(text).changes for line in change.new]
            read |= tree.reads(ast.parse(line + " pass" * line.endswith(":")) for line in lines)
        else:
            offered = {*grammar.page.names, *grammar.fresh}
            assert answer.stage == "names" and answer.reason.split("'")[1] in offered, (text, answer)
    return words, read


@pytest.mark.slow
@pytest.mark.parametrize("name", traced.NAMES)
def test_every_sentence_is_in_the_format_python_and_past_the_gate(name):
    """What is refused is a name read where it is not bound yet; others of the parent's can be read."""
    grammar = build_grammar(seeds.seed(name), traced.task(name))
    words, read = follow(grammar, 60)
    assert words["SET"] and words["LINE"] and words["BEFORE"], words
    assert read & {*grammar.page.names}, read


@pytest.mark.slow
def test_every_sentence_under_other_parents_is_too():
    """Kernels of the corpus of cheats, and what edits make of the seeds: helpers, loops, two kernels, constants."""
    rng = random.Random(0)
    for name, file, kernel in islice(traced.cheats(rng), 8):
        assert follow(build_grammar(kernel, traced.task(name)), 12)[0], file
    for name in ("softmax_wide", "matmul"):
        kernel, task = seeds.seed(name), traced.task(name)
        every = (edit.apply(kernel, task) for edit in rng.sample(EDITS, len(EDITS)))
        for rewrites in islice((found for found in every if not isinstance(found, NotApplicable)), 4):
            assert follow(build_grammar(rewrites[0].kernel, task), 12)[0]


def test_a_grammar_is_a_function_of_its_parent():
    one = build_grammar(seeds.seed("matmul"), traced.task("matmul"))
    assert one.digest == traced.grammar("matmul").digest
    assert one.digest != traced.grammar("linear_gelu").digest


def test_a_parent_without_statements_has_none():
    empty = seeds.seed("softmax").render().partition("    row = ")[0] + '    """Nothing."""\n'
    with pytest.raises(NoGrammar, match="no statements"):
        build_grammar(Kernel.parse(empty), traced.task("softmax"))
