"""A skeleton from the shapes of a reference, and the grammar of its body: what fits, what is refused, what is said."""

import random

import pytest

from kernelsearch.core.errors import TaskError
from kernelsearch.core.types import TensorFact
from kernelsearch.kernel.source import Kernel
from kernelsearch.kernel.targets import target_by_name
from kernelsearch.propose.first import body_page
from kernelsearch.propose.first.body import BUDGET, Body
from kernelsearch.propose.first.template import NoTemplate, choose_template
from kernelsearch.propose.grammar import AnswerRejection
from kernelsearch.propose.grammar.names import find_unresolved
from kernelsearch.tasks.outline import Outline
from kernelsearch.verify import gate
from kernelsearch.worker.launcher.outline import outline_task

SOFTMAX = """BODY
    s0 = tl.max(tl.where(mask, x, float("-inf")), axis=0)
    t0 = tl.exp((x - s0))
    s1 = tl.sum(tl.where(mask, t0, 0.0), axis=0)
    out = (t0 / s1)
END"""


def tensor(*shape, dtype="fp32"):
    return TensorFact(dtype, shape, ())


def outline(inputs, output, **fields):
    """Two shapes, so that a square does not hide what an input is."""
    grown = {n: larger(v) if isinstance(v, TensorFact) else v for n, v in inputs.items()}
    both = {"timed:0": inputs, "test:0": grown}
    return Outline(
        "t", "native", both, {"timed:0": (output,), "test:0": (larger(output),)}, "def reference(x): ...", **fields
    )


def larger(fact):
    return tensor(*(3 * s if s > 1 else 1 for s in fact.shape), dtype=fact.dtype)


X = tensor(8, 16)
FITTING = {
    "map": outline({"x": X, "w": tensor(16), "r": tensor(8), "eps": 1e-5, "one": tensor()}, X),
    "rows": outline({"x": X}, tensor(8)),
    "kept axis": outline({"x": tensor(2, 4, 16)}, tensor(2, 4, 1)),
    "flat": outline({"x": tensor(64), "z": tensor(64)}, tensor(64)),
    "bf16": outline({"x": tensor(8, 16, dtype="bf16")}, tensor(8, 16, dtype="fp32"), constants=(1e-6,)),
}


@pytest.mark.parametrize("name", FITTING)
def test_every_body_of_a_grammar_is_a_kernel_that_binds_its_names_and_passes_the_gate(name):
    made = choose_template(FITTING[name])
    body = Body.of(made)
    assert body.longest <= BUDGET
    for seed in range(60):
        text = body.rules.sample(body.start, random.Random(seed))
        lines = body.read(text)
        assert isinstance(lines, str), lines
        kernel = Kernel.parse(made.kernel_file(lines))
        assert not find_unresolved(kernel) and gate.check(kernel.render()).accepted
        compile(made.file("import torch\n", lines), "task.py", "exec")


def test_what_each_input_is_to_a_row():
    made = choose_template(FITTING["map"])
    assert made.roles == {"x": "tile", "w": "column", "r": "row", "eps": "number", "one": "one"}
    assert (made.kind, made.result, made.dtype, made.reduces) == ("rows", "x.shape", "x.dtype", False)
    assert choose_template(FITTING["kept axis"]).result == "(*x.shape[:-1], 1)"
    assert choose_template(FITTING["flat"]).kind == "flat"


@pytest.mark.parametrize("case, said", [
    (outline({"a": tensor(4, 8), "b": tensor(8, 16)}, tensor(4, 16)),
     "neither a tensor of that shape nor one number a row"),
    (outline({"x": X}, tensor()), "neither a tensor of that shape nor one number"),
    (outline({"x": X, "w": tensor(5)}, X), "its input w of shape [5] is nothing that one row of x needs"),
    (outline({"x": tensor(8, 16, dtype="i64")}, X), "holds no floating-point numbers"),
    (outline({"x": X, "causal": True}, X), "causal is neither a tensor nor a number"),
    (outline({"x": X, "cols": tensor(16)}, X), "cols has a name that the skeleton needs"),
    (outline({"x": tensor(8, 100000), "w": tensor(100000)}, tensor(8, 100000)), "do not fit into one block"),
    (outline({"x": X}, X, stateful=True), "weights of its own"),
])  # fmt: skip
def test_what_no_skeleton_fits_is_said(case, said):
    with pytest.raises(NoTemplate, match=said.replace("[", r"\[").replace("]", r"\]")):
        choose_template(case)


def test_an_answer_is_read_by_the_grammar_alone():
    body = Body.of(choose_template(outline({"x": X}, X)))
    assert body.read(SOFTMAX + "\n").count("\n") == 4
    assert body.read(f"<think>BODY?</think>Here:\n```\n{SOFTMAX}\n```\nEnjoy.") == body.read(SOFTMAX)
    for text in ("", "nonsense", SOFTMAX.replace("(t0 / s1)", "open('/etc/passwd')"), SOFTMAX.replace("s1 =", "s2 ="),
                 "x" * 9999, SOFTMAX.replace("tl.where(mask, t0, 0.0)", "t0")):  # fmt: skip
        found = body.read(text)
        assert isinstance(found, AnswerRejection) and found.stage == "grammar"
    assert body.read(SOFTMAX, stopped=False).stage == "stopped"


def test_engines_read_the_grammar_in_both_dialects():
    body = Body.of(choose_template(FITTING["map"]))
    llguidance = pytest.importorskip("llguidance")
    assert not llguidance.LLMatcher.validate_grammar(llguidance.LLMatcher.grammar_from_lark(body.lark))
    xgrammar = pytest.importorskip("xgrammar")
    xgrammar.Grammar.from_ebnf(body.ebnf)


def test_a_task_without_a_kernel_is_outlined(tmp_path):
    (tmp_path / "scaled.py").write_text(
        "import torch\nSCALE = 0.25\ndef reference(x, w): return torch.softmax(x * SCALE, -1) * w\n"
        "def get_inputs(rows=64, cols=100): return [torch.randn(rows, cols), torch.randn(cols)]\n"
    )
    found = outline_task(str(tmp_path / "scaled.py"), target_by_name("h100"))
    made = choose_template(found)
    assert made.roles == {"x": "tile", "w": "column"} and 0.25 in made.constants and "SCALE = 0.25" in found.source
    text = body_page.write_page(found, Body.of(made), "h100", [(SOFTMAX, "wrong by a lot")])
    assert all(
        part in text for part in ("torch.softmax", "def first_kernel(", "w: a tile", "out: a tile", "wrong by a lot")
    )


def test_inputs_that_are_made_of_values_are_outlined(tmp_path):
    (tmp_path / "read.py").write_text(
        "import torch\ndef reference(x): return x * 2\n"
        "def get_inputs(n=8): return [torch.randn(int(torch.full((2,), n).sum()), 16)]\n"
    )
    found = outline_task(str(tmp_path / "read.py"), target_by_name("h100"))
    assert found.inputs["timed:0"]["x"].shape == (16, 16)
    (tmp_path / "broken.py").write_text("import torch\ndef reference(x): return x * 2\ndef get_inputs(): return [y]\n")
    with pytest.raises(TaskError, match="get_inputs.*'y'"):
        outline_task(str(tmp_path / "broken.py"), target_by_name("h100"))


def test_a_model_with_weights_is_said_to_have_them(tmp_path):
    (tmp_path / "linear.py").write_text(
        "import torch\nfrom torch import nn\nclass Model(nn.Module):\n    def __init__(self):\n"
        "        super().__init__()\n        self.w = nn.Parameter(torch.ones(8))\n"
        "    def forward(self, x):\n        return x * self.w\n"
        "def get_inputs(): return [torch.randn(4, 8)]\ndef get_init_inputs(): return []\n"
    )
    assert outline_task(str(tmp_path / "linear.py"), target_by_name("h100")).stateful
