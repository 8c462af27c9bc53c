"""The one grammar of kernel files: honest kernels are in it, the gate refuses no draw for its syntax, engines agree."""

import ast
import json
import random
import re

import drawing
import edit_seeds
import pytest
import tiny
import traced

from kernelsearch.core.types import content_digest
from kernelsearch.kernel import language
from kernelsearch.kernel.source import SPEC_NAMES, Kernel
from kernelsearch.propose.grammar.kernel_file import UNUSABLE, make_grammar
from kernelsearch.propose.grammar.whole_kernel import find_file
from kernelsearch.verify import gate

ABOUT_NAMES = re.compile(
    r"is not bound|given twice|defined twice|\(\.\.\.\) is refused; a kernel calls|functions of this file|"
    r"has no argument|takes at most \d+ arguments|calls itself|may not be redefined|"
    r"keyword argument repeated|by function|by argument"
)
"""What the gate says of names and of what they stand for, which no grammar of the language can know."""
TOO_LONG = re.compile(r"at most 400 characters|nests too deeply|nests deeper|longer than|more than")
PROBE = r'probe: "@triton.jit\ndef h(a, b, c):\n    return a\n\n\n@triton.jit\ndef k(a, b, c):" body1 NL' + "\n"


class Matchers:
    """llguidance's and xgrammar's matchers of one grammar."""

    def __init__(self, grammar):
        import llguidance.hf
        import xgrammar
        from llguidance import LLMatcher

        words = tiny.tokenizer()
        self.tokens = llguidance.hf.from_tokenizer(words, n_vocab=len(words))
        self.matcher = LLMatcher(self.tokens, LLMatcher.grammar_from_lark(grammar.lark))
        assert not self.matcher.is_error(), self.matcher.get_error()
        info = xgrammar.TokenizerInfo.from_huggingface(words, vocab_size=len(words), stop_token_ids=words.eos_token_id)
        compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self.compiled, self.make = compiler.compile_grammar(grammar.ebnf), xgrammar.GrammarMatcher

    def accept(self, text):
        """True or False; raises where the two disagree."""
        ids, matcher = self.tokens.tokenize_str(text), self.matcher.deep_copy()
        one = matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()
        other = self.make(self.compiled, terminate_without_stop_token=True)
        two = other.accept_string(text) and other.is_terminated()
        assert one == two, (one, two, text)
        return one


@pytest.fixture(scope="module")
def files():
    return Matchers(make_grammar("file"))


@pytest.fixture(scope="module")
def probe():
    grammar = make_grammar("probe", {"NAME": ("a", "b", "c", "h")}, PROBE)
    return grammar, Matchers(grammar)


def honest():
    """(name, text) of kernels that the gate takes: the corpus, the shipped seeds, an example, each also as rendered."""
    corpus = sorted((traced.ROOT / "tests" / "cheats").glob("*_honest_*.py"))
    texts = {path.stem: path.read_text(encoding="utf-8") for path in corpus}
    texts |= {name: edit_seeds.seed(name).render() for name in traced.NAMES}
    page = (traced.ROOT / "kernelsearch" / "kernel" / "kernel_file.md").read_text(encoding="utf-8")
    texts["page"] = page.partition("```python\n")[2].partition("```")[0]
    for path in sorted((traced.ROOT / "studies" / "models" / "answers").glob("*.jsonl")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines()):
            text = find_file(json.loads(line)["samples"][0]["text"])
            if "evict_last" not in text:  # the one that the gate refuses
                texts[f"{path.stem} {number}"] = text
    return [(n, t) for n, text in texts.items() for t in dict.fromkeys((text, Kernel.parse(text).render()))]


@pytest.mark.slow
def test_honest_kernels_are_in_the_grammar(files):
    """And the gate's own refusals are not: host code, another import, a call that no kernel may make."""
    texts = honest()
    missing = [name for name, text in texts if not files.accept(text)]
    assert len(texts) > 100 and not missing
    text = dict(texts)["softmax_honest_seed"]
    host, printing = text + "\ndef f(x):\n    return x\n", text.replace("tl.exp(", "tl.device_print(")
    indented, keyword = text.replace("    tl.store(", "      tl.store("), text.replace("mask=", "masks=")
    for wrong in ("import os\n" + text, host, printing, indented, keyword):
        assert wrong != text and not gate.check(wrong).accepted and not files.accept(wrong)


def _check_draw(text, matchers):
    assert matchers.accept(text), text
    verdict = gate.check(text)
    known = verdict.accepted or ABOUT_NAMES.search(verdict.reason) or TOO_LONG.search(verdict.reason)
    assert known, (verdict.reason, text)
    return verdict.accepted


@pytest.mark.slow
def test_the_gate_refuses_no_draw_for_its_syntax(probe):
    """Bodies over bound names, so that what the gate reads is more than the first name; most are accepted."""
    grammar, matchers = probe
    drawn = [drawing.draw(grammar.ebnf, random.Random(n), depth=20 + n % 8) for n in range(150)]
    assert sum(_check_draw(text, matchers) for text in drawn) > 90
    nodes = {type(n).__name__ for text in drawn if len(text) < 3000 for n in ast.walk(ast.parse(text))}
    assert nodes >= {"For", "While", "If", "IfExp", "Pow", "AugAssign", "AnnAssign", "Slice", "IsNot", "keyword"}


@pytest.mark.slow
def test_the_gate_refuses_no_drawn_file_for_its_syntax(files):
    grammar = make_grammar("file")
    drawn = [drawing.draw(grammar.ebnf, random.Random(n), depth=20 + n % 10) for n in range(100)]
    assert sum(_check_draw(text, files) for text in drawn) > 20
    tail = r'"\n\n\n@triton.jit\ndef k(a):\n    pass\n"'
    spec = make_grammar("spec", {"NAME": ("k", "a")}, f"spec: (setting | launches) {tail}\n")
    drawn = [drawing.draw(spec.ebnf, random.Random(n), depth=14) for n in range(150)]
    assert {text.split(" ")[0].split("=")[0] for text in drawn} == {*SPEC_NAMES} - {"LANGUAGE"}  # Triton's
    assert sum(_check_draw(text, files) for text in drawn) > 100


def test_what_is_changed_by_one_character_is_judged_alike(probe):
    """Both engines agree on each text; what they take, the gate does not refuse for its syntax."""
    grammar, matchers = probe
    taken = 0
    for n in range(150):
        rng = random.Random(n)
        text = drawing.draw(grammar.ebnf, rng, depth=18)
        at = rng.randrange(60, len(text))
        changed = text[:at] + rng.choice("x0 (),\n:.=\"'#[]*-") + text[at + rng.randrange(2) :]
        if matchers.accept(changed):
            taken += 1
            _check_draw(changed, matchers)
    assert 10 < taken < 150


def test_functions_and_their_keywords_are_the_gates(files):
    """Each function of the list is in the grammar with each of its keywords, and no other name is."""
    head = "@triton.jit\ndef k(a):\n    "
    functions = language.functions_of(language.installed_version())
    for name, parameters in functions.items():
        loop = name in ("range", "static_range")
        line = f"for i in tl.{name}({{}}):\n        pass\n" if loop else f"a = tl.{name}({{}})\n"
        given = [f"{p}=a" for p in parameters]
        for argument in [*given, ", ".join(given)] if "assert" not in name else ["a", 'a, "a message"']:
            text = head + line.format(argument)
            assert files.accept(text) and gate.check(text).accepted, text
        assert not files.accept(head + line.format("wrong=a"))
    for name in (*language.REFUSED, "zeroes", "exp3"):
        assert not files.accept(f"{head}a = tl.{name}(a)\n")


def test_words_of_the_language_are_no_names(files):
    for word in (*UNUSABLE, "__a"):
        assert not files.accept(f"@triton.jit\ndef k(a):\n    {word} = a\n"), word
        near = (word[:-1], f"{word}x", f"{word}_", f"_{word}") if word != "__a" else ("_a", "_", "a__")
        for name in near:
            if name not in UNUSABLE and not name.startswith("__"):
                assert files.accept(f"@triton.jit\ndef k(a):\n    {name} = a\n"), name


def test_an_answer_is_held_to_the_grammar_in_its_last_block_only():
    """Thinking and prose are free; the kernel has a name of the task and an argument that the launcher passes."""
    words = {"SITE": ("softmax_kernel",), "PASSED": ("x_ptr", "y_ptr", "n_cols")}
    matchers, after = (Matchers(make_grammar(s, words)) for s in ("kernel_answer", "after_thought"))
    kernel = dict(honest())["softmax_honest_seed"]
    fenced = f"```python\n{kernel}```"
    for text in (fenced, f"Sure, `x` it is:\n\n{fenced}\n", f"<think>a draft:\n```\nx\n```\nno</think>\n{fenced}"):
        assert matchers.accept(text), text
    for text in (kernel, f"{fenced}\n{fenced}", "```python\nx = 1\n```", fenced.replace("tl.", "xl."),
                 fenced.replace("def softmax_kernel", "def another"), fenced.replace("kernel(x_ptr", "kernel(z, x_ptr"),
                 f"<think>no end\n{fenced}"):  # fmt: skip
        assert not matchers.accept(text), text
    launches = fenced.replace("def softmax_kernel", "def another").replace(
        "\n\n@tri", '\nLAUNCHES = ["another"]\n\n@tri'
    )
    assert matchers.accept(launches)
    assert after.accept(f"a draft:\n```\nx\n```\nno</think>\n\n{fenced}") and not after.accept(fenced)


def test_both_texts_keep_to_what_other_readers_of_their_dialect_know():
    """GBNF: names without underscores, no left recursion; Lark: no look-around, no templates that are left."""
    grammar = make_grammar("kernel_answer")
    names = [line.partition(" ::= ")[0] for line in grammar.ebnf.strip().split("\n")]
    assert names[0] == "root" and all(re.fullmatch(r"[A-Za-z0-9-]+", n) for n in names) and len({*names}) == len(names)
    first = {n: _leading(body) for n, body in drawing.language(grammar.ebnf).rules.items()}
    for name in names:
        reached, waiting = set(), list(first[name])
        while waiting:
            if (at := waiting.pop()) not in reached:
                reached.add(at)
                waiting += first[at]
        assert name not in reached, f"{name} begins with itself"
    assert "(?" not in grammar.lark and not re.search(r"^\w+\{", grammar.lark, re.MULTILINE)
    assert grammar.digest == content_digest(make_grammar("kernel_answer").lark)


def _leading(node):
    """The rules that a sentence of a node may begin with."""
    kind, parts = node
    if kind == "ref":
        return {parts}
    if kind == "any":
        return set().union(*map(_leading, parts))
    if kind == "repeat":
        return _leading(parts[0])
    found = set()
    for part in parts if kind == "all" else ():
        found |= _leading(part)
        if part[0] != "repeat" or part[1][1]:
            break
    return found
