"""Rule sets: what they generate, how long it can get, and the check that decides whether a text belongs to one."""

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelsearch.propose.grammar.check import find_mismatch
from kernelsearch.propose.grammar.language import write_ebnf, write_lark
from kernelsearch.propose.grammar.rules import Rules


@st.composite
def rule_sets(draw):
    """A small rule set over the letters a and b, and its last rule."""
    rules, refs = Rules(), []
    literal = st.text("ab", min_size=1, max_size=3)
    for _ in range(draw(st.integers(1, 5))):
        part = literal | st.sampled_from(refs) if refs else literal
        alternatives = draw(st.lists(st.lists(part, min_size=1, max_size=3).map(tuple), min_size=1, max_size=3))
        refs.append(rules.add(alternatives))
    return rules, refs[-1]


def language(rules, ref):
    """Every sentence, by enumeration."""
    out = set()
    for alternative in rules.rules[ref].alternatives:
        choices = [[p] if isinstance(p, str) else sorted(language(rules, p)) for p in alternative]
        out |= {"".join(c) for c in itertools.islice(itertools.product(*choices), 3000)}
    return out


@given(rule_sets(), st.text("ab", max_size=8), st.integers(0, 99))
def test_the_check_is_membership(made, text, seed):
    rules, start = made
    drawn = rules.sample(start, random.Random(seed))
    assert find_mismatch(rules, start, drawn) is None
    assert len(drawn) <= rules.rules[start].longest
    sentences = language(rules, start)
    if len(sentences) < 1000:
        assert (find_mismatch(rules, start, text) is None) == (text in sentences)
        assert max(map(len, sentences)) == rules.rules[start].longest


@given(rule_sets(), st.text("ab", max_size=8))
def test_a_mismatch_is_where_no_sentence_goes_on(made, text):
    rules, start = made
    sentences = language(rules, start)
    found = find_mismatch(rules, start, text)
    if found is not None and len(sentences) < 1000:
        assert any(s.startswith(text[: found.offset]) for s in sentences)
        assert not any(s.startswith(text[: found.offset + 1]) for s in sentences if found.offset < len(text))


def test_equal_bodies_are_one_rule_and_none_leaves_an_alternative_out():
    rules = Rules()
    one, again = rules.one_of(["x", "y"]), rules.add([("x",), ("y",), ("z", None)])
    assert one == again
    assert rules.add([(None,)]) is None
    assert rules.add([("a", "b", one, "c", "d")]) == rules.add([("ab", one, "cd")])


def test_a_mismatch_says_where_and_what_was_expected():
    rules = Rules()
    start = rules.add([("LINE 7\n    x = ", rules.one_of(["mask", "cols"]), "\nEND")])
    text = "LINE 7\n    x = other\nEND"
    assert find_mismatch(rules, start, text).sentence(text) == (
        "line 2, column 9 of the answer: 'other\\nEND' where the grammar has 'cols', 'mask'"
    )
    half = "LINE 7\n    x = mast\nEND"
    assert "column 9 of the answer: 'mast\\nEND' where the grammar has 'mask'" in find_mismatch(
        rules, start, half
    ).sentence(half)
    short = "LINE 7\n    x = mask"
    assert "the end where the grammar has '\\nEND'" in find_mismatch(rules, start, short).sentence(short)
    assert find_mismatch(rules, start, "LINE 7\n    x = mask\nEND\n").expected == ()


@pytest.mark.parametrize("write, name, sign", [(write_lark, "start", ": "), (write_ebnf, "root", " ::= ")])
def test_both_dialects_are_literals_and_references_only(write, name, sign):
    rules = Rules()
    text = write(rules, rules.add([('float("-inf")', rules.one_of(["\n", "\\"]))]))
    assert text.startswith(name + sign)
    assert not set("[]{}*+?").intersection(text)
    assert r"\n" in text and r"\\" in text
