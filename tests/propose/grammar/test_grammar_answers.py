"""Reading an answer, and what it makes of the parent: each stage that may refuse it, and each form that it takes."""

import edit_seeds as seeds
import pytest
import traced

from kernelsearch.core.types import Verdict, Word
from kernelsearch.propose.contract import Rewrite
from kernelsearch.propose.edits import edit_named
from kernelsearch.propose.grammar import STAGES, Answer, AnswerRejection, build_grammar
from kernelsearch.propose.grammar.answer import Malformed, apply_changes, parse
from kernelsearch.propose.grammar.source_page import find_unresolved
from kernelsearch.propose.models.prompt import PromptDevice, PromptPage, write_page
from kernelsearch.verify import gate


@pytest.fixture(scope="module")
def grammar():
    return traced.grammar("softmax")


def line_of(grammar, text):
    return next(n for n, line in enumerate(grammar.lines, 1) if line.strip().startswith(text))


def test_the_lines_are_the_source_that_is_compiled(grammar):
    assert "\n".join(grammar.lines) + "\n" == grammar.parent.code
    assert grammar.numbered.splitlines()[6].startswith("  7     row = tl.program_id(0)")


def test_a_line_is_replaced_another_goes_before_and_one_goes(grammar):
    numerator, x = line_of(grammar, "numerator ="), line_of(grammar, "x = x")
    text = f"LINE {x}\n    t0 = x * 2.0\n    x = t0\n"
    text += f"LINE {numerator}\n    numerator = tl.exp2(x * 1.4426950408889634)\nEND"
    answer = grammar.apply(text, gate=gate.check)
    assert isinstance(answer, Answer) and answer.edit == "lines"
    lines = answer.kernel.code.splitlines()
    assert lines[x - 1 : x + 2] == ["    t0 = x * 2.0", "    x = t0", "    numerator = tl.exp2(x * 1.4426950408889634)"]
    gone = grammar.apply(f"DELETE {x}\nEND", gate=gate.check)
    assert len(gone.kernel.code.splitlines()) == len(grammar.lines) - 1 and "pass" not in gone.kernel.code


def test_a_deleted_statement_leaves_pass_only_where_a_block_would_be_empty():
    lines = ["def f(n):", "    for i in range(n):", "        a = 1", "    b = 2", "    c = 3"]
    spans = {2: 2, 3: 3, 4: 4, 5: 5}
    kept = apply_changes(lines, spans, parse("DELETE 3\nDELETE 4\nEND").changes)
    from kernelsearch.propose.grammar.source_page import _without_needless_passes

    assert _without_needless_passes(kept) == "def f(n):\n    for i in range(n):\n        pass\n    c = 3\n"


def test_settings_and_the_grid_of_a_persistent_kernel_are_part_of_the_kernel(grammar):
    task = traced.task("softmax")
    variants = edit_named("persistent").apply(seeds.seed("softmax"), task)
    walking = build_grammar(variants[0].kernel, task)
    (function,) = walking.parent.entries
    answer = walking.apply("GRID (min(grid(0), num_sms),)\nSET num_warps 8\nEND", gate=gate.check)
    assert answer.edit == "launch" and answer.config == {"num_warps": 8} and answer.kernel.config["num_warps"] == 8
    assert answer.kernel.grid == {function: "(min(grid(0), num_sms),)"}
    assert answer.kernel.functions == walking.parent.functions
    tuned = grammar.apply("SET num_warps 8\nEND", gate=gate.check)
    assert tuned.kernel.digest == grammar.parent.digest


def test_where_each_program_does_its_own_share_no_other_grid_can_be_said(grammar):
    assert "GRID" not in grammar.for_engine.lark
    assert grammar.apply("GRID (min(grid(0), num_sms),)\nEND").stage == "parses"


def test_a_typed_edit_is_named_with_its_variant_and_its_numbers():
    kernel, task = seeds.seed("softmax"), traced.task("softmax")
    variants = edit_named("rows_2d").apply(kernel, task)
    grammar = build_grammar(kernel, task, {"rows_2d": variants, "nothing": []})
    name, values = next((n, v) for n, v in variants[0].kernel.space.items() if n not in ("num_warps", "num_stages"))
    answer = grammar.apply(f"EDIT rows_2d 1\nSET {name} {values[-1]}\nEND", gate=gate.check)
    assert answer.edit == "rows_2d" and answer.variant == 1
    assert answer.kernel.digest == variants[0].kernel.digest and answer.kernel.config[name] == values[-1]
    for unknown in ("nothing 1", f"rows_2d {len(variants) + 1}"):
        assert grammar.apply(f"EDIT {unknown}\nEND").stage == "parses"


def test_an_edit_that_was_tried_is_not_offered_again():
    kernel, task = seeds.seed("softmax"), traced.task("softmax")
    made = [Rewrite(kernel.with_changes(grid={kernel.entries[0]: str(n + 1)}), "e", "") for n in range(4)]
    grammar = build_grammar(kernel, task, {"persistent": made, "exp2": made[:1]})
    left = grammar.without({made[0].kernel.digest, made[2].kernel.digest, kernel.digest})
    assert left.offered == {"persistent": [2, 4]} and grammar.offered == {"persistent": [1, 2, 3, 4], "exp2": [1]}
    assert [n for n in "1234" if f"EDIT persistent {n}" in left.for_engine.lark] == ["2", "4"]
    assert "EDIT exp2" in grammar.for_engine.lark and "EDIT exp2" not in left.for_engine.lark
    page = write_page(PromptPage(left, task, PromptDevice("a GPU")), len, 10**6).text
    assert "EDIT persistent 2, 4: " in page and "EDIT exp2" not in page
    assert left.apply("EDIT persistent 1\nEND").kernel == made[0].kernel  # an answer that is stored is read as it was


STAGED = {
    "stopped": ("LINE 11\n    x = x", {"stopped": False}, "cut short"),
    "grammar": ("LINE 12\nnumerator = mask\nEND", {}, "line 2 of the answer"),
    "parses": ("LINE 12\n    numerator = tl.exp(\nEND", {}, "not Python"),
    "names": ("LINE 12\n    numerator = tl.exp(other)\nEND", {}, "'other' is not bound"),
    "gate": ("LINE 12\n    numerator = tl.exp(x)\n    tl.device_print(x)\nEND", {}, "prints nothing"),
}


@pytest.mark.parametrize("stage", STAGES)
def test_each_stage_refuses_with_a_sentence(stage, grammar):
    text, options, sentence = STAGED[stage]
    found = grammar.apply(text, gate=gate.check, **options)
    assert isinstance(found, AnswerRejection) and found.stage == stage and sentence in found.reason, found


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("", "does not close with END"),
        ("END", "says nothing"),
        ("LINE 7\n    row = 1", "does not close"),
        ("LINE x\nEND", "line 1 of the answer"),
        ("    row = 1\nEND", "line 1 of the answer"),
        ("SET num_warps 4\nLINE 7\n    row = 0\nEND", "line 2 of the answer"),
        ("SET num_warps 4\nSET num_warps 8\nEND", "line 2 of the answer"),
        ("DELETE 7\n    row = 1\nEND", "line 2 of the answer"),
        ("EDIT exp2 1\nLINE 7\n    row = 0\nEND", "line 2 of the answer"),
        ("```\nLINE 7\n    row = 0\nEND", "line 1 of the answer"),
    ],
)
def test_what_is_not_in_the_format_is_one_clear_sentence(text, sentence):
    with pytest.raises(Malformed, match=sentence):
        parse(text)


def test_lines_must_be_statements_of_the_parent_in_order(grammar):
    for text, sentence in (
        ("LINE 3\n    row = 0\nEND", "no statement that may be changed begins at line 3"),
        ("LINE 9\n    mask = mask\nLINE 8\n    cols = cols\nEND", "line numbers ascend"),
    ):
        found = grammar.apply(text)
        assert found.stage == "parses" and sentence in found.reason


def test_a_gate_that_refuses_is_the_last_word(grammar):
    refusing = lambda text: Verdict(Word.STATIC, "gate", "never")  # noqa: E731
    assert grammar.apply("SET num_warps 8\nEND", gate=refusing) == AnswerRejection(
        "SET num_warps 8\nEND", "gate", "never"
    )


def test_hostile_text_is_data(grammar):
    """Nothing of an answer is executed, whatever it is, and nothing raises."""
    for text in (
        "LINE 12\n    numerator = __import__('os').system('true')\nEND",
        "LINE 12\n    numerator = tl.exp(x)\n\nimport os\nEND",
        "SET num_warps __import__('os')\nEND",
        "GRID __import__('os').system('true')\nEND",
        "LINE 99999999999999999999\n    x = x\nEND",
        "LINE ٣\n    x = x\nEND",
        "\x00\nEND",
        "LINE 12\n" + "    x = (" * 200 + "\nEND",
    ):
        found = grammar.apply(text, gate=gate.check)
        assert isinstance(found, AnswerRejection) and found.reason


def test_what_a_model_may_set_is_named():
    """Where any name could be set, a misspelt one would be a config that nothing reads."""
    grammar = traced.grammar("softmax")
    found = grammar.apply("SET BLOK 512\nEND")
    assert found.stage == "parses" and "BLOK" in found.reason and "num_warps" in found.reason
    assert grammar.apply("SET num_stages 2\nSET num_warps 8\nEND").config == {"num_stages": 2, "num_warps": 8}


def test_names_and_shapes_of_a_models_own_are_no_mistake(grammar):
    """Refused once, since the grammar knew two names, one shape, and one order of settings."""
    text = "BEFORE 12\n    top = tl.max(x, axis=0)\n    wide = tl.zeros([BLOCK], tl.float32) + top\n"
    answer = grammar.apply(f"{text}LINE 12\n    numerator = tl.exp(x - wide)\nEND", gate=gate.check)
    assert isinstance(answer, Answer) and "wide = tl.zeros([BLOCK], tl.float32) + top" in answer.kernel.code


@pytest.mark.parametrize(
    "body, unbound",
    [
        ("for i in range(n):\n    a = i\nb = a + i", ["a", "i"]),
        ("if n > 0:\n    a = 1\nelse:\n    b = 1\n    a = b\nc = a + b", ["b"]),
        ("while a < n:\n    a = 1\na = a", ["a"]),
        ("a = b\nb = 1\na += b + c\nd += 1", ["b", "c", "d"]),
        ("for i in range(i):\n    b = a\n    a = i", ["i", "a"]),
    ],
)
def test_a_name_is_bound_where_every_way_has_bound_it(body, unbound):
    assert find_unresolved(seeds.drawn(body, "n")) == unbound
