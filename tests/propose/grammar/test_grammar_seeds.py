"""The grammars of parents: what is drawn ends, parses and passes the gate, whatever it means."""

import random
from collections import Counter

import drawing
import edit_seeds as seeds
import pytest
import traced

from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.edits import EDITS, NotApplicable
from kernelsearch.propose.grammar import Answer, NoGrammar, build_grammar
from kernelsearch.verify import gate


def stages(grammar, draws):
    """How many of so many answers are kernels, or are refused at each stage; `names` are the only ones that may be."""
    found = Counter()
    for seed in range(draws):
        text = drawing.answer(grammar, random.Random(seed))
        answer = grammar.apply(text, gate=gate.check)
        word = "good" if isinstance(answer, Answer) else answer.stage
        assert word in ("good", "names"), (text, answer)
        assert len(text) < 2000 and (word != "good" or answer.kernel.names == grammar.parent.names)
        found[word, text.split(" ")[0]] += 1
    return found


@pytest.mark.parametrize("name", traced.NAMES)
def test_every_sentence_is_in_the_format_python_and_past_the_gate(name):
    found = stages(build_grammar(seeds.seed(name), traced.task(name)), 60)
    assert {word for stage, word in found if stage == "good"} & {"LINE", "BEFORE"} and sum(
        n for (stage, _), n in found.items() if stage == "good"
    ) > 15


def test_every_sentence_under_other_parents_is_too():
    """Kernels of the corpus of cheats, and what edits make of the seeds: helpers, loops, two kernels, constants."""
    rng = random.Random(0)
    for name, file, kernel in rng.sample(traced.cheats(), 8):
        assert stages(build_grammar(kernel, traced.task(name)), 12), file
    for name in ("softmax_wide", "matmul"):
        kernel, task = seeds.seed(name), traced.task(name)
        every = [found for edit in EDITS if not isinstance(found := edit.apply(kernel, task), NotApplicable)]
        for rewrites in rng.sample(every, 4):
            assert stages(build_grammar(rewrites[0].kernel, task), 12)


def test_a_grammar_is_a_function_of_its_parent():
    one = build_grammar(seeds.seed("matmul"), traced.task("matmul"))
    assert one.digest == traced.grammar("matmul").digest
    assert one.digest != traced.grammar("linear_gelu").digest


def test_a_parent_without_statements_has_none():
    empty = seeds.seed("softmax").render().partition("    row = ")[0] + '    """Nothing."""\n'
    with pytest.raises(NoGrammar, match="no statements"):
        build_grammar(Kernel.parse(empty), traced.task("softmax"))
