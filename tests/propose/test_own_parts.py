"""Edits and engines of a user's own, from a file."""

import random
import re

import edit_seeds as seeds
import pytest

from kernelsearch.cli.help import path_of
from kernelsearch.core.errors import EditError, ModelError
from kernelsearch.propose.contract import Request
from kernelsearch.propose.edits import EDITS, add_edit
from kernelsearch.propose.engines import ENGINES, open_engine, parse_spec
from kernelsearch.propose.proposers import ModelOptions
from kernelsearch.propose.typed_edits import TypedEdits
from kernelsearch.record.store import Store
from kernelsearch.verify import gate
from simulated_search import make_search

EDIT = """
import ast
from kernelsearch.propose.analysis import tree
from kernelsearch.propose.edits import Edit

class TwiceNegated(Edit):
    summary = "x becomes -(-x) where it is stored"
    refusal = "nothing is stored"

    def change(self, view):
        patch = tree.Patch(view.text)
        calls = [n for n in ast.walk(view.node) if isinstance(n, ast.Call) and ast.unparse(n.func) == "tl.store"]
        for call in calls:
            patch.replace_expr(call.args[1], f"-(-({tree.text_of(call.args[1])}))")
        if calls:
            yield view.rewrite(patch, "For the sake of the test.")
"""
ENGINE = """
from kernelsearch.propose.engines import Engine

OPTIONS = ("speed",)

class Mine(Engine):
    def __init__(self, spec):
        self.name, self.label, self.speed = spec.text, "mine", spec.options.get("speed")

def open(spec):
    return Mine(spec)
"""


@pytest.fixture
def examples(tmp_path):
    """The files of the page on Python, by name."""
    blocks = re.findall(r"```python\n# (\w+)\.py\n(.*?)```", path_of("python").read_text(), re.DOTALL)
    for name, text in blocks:
        (tmp_path / f"{name}.py").write_text(text)
    return {name: str(tmp_path / f"{name}.py") for name, _ in blocks}


@pytest.fixture(autouse=True)
def unchanged():
    """What a test adds is gone behind it."""
    before, kinds = list(EDITS), dict(ENGINES)
    yield
    EDITS[:] = before
    for added in ENGINES.keys() - kinds:
        del ENGINES[added]


def test_an_edit_of_a_file_is_drawn_like_any_other(tmp_path):
    (tmp_path / "twice_negated.py").write_text(EDIT)
    edit = add_edit(str(tmp_path / "twice_negated.py"))
    assert add_edit(str(tmp_path / "twice_negated.py")).name == edit.name == "twice_negated"
    assert [e.name for e in EDITS].count("twice_negated") == 1
    request = Request(seeds.seed("rmsnorm"), seeds.task("rmsnorm"), edit="twice_negated")
    rewrite = TypedEdits().propose(request, random.Random(0))
    assert rewrite.edit == "twice_negated" and "-(-(" in rewrite.kernel.code


def test_the_pages_examples_of_a_strategy_and_of_an_edit_work(examples):
    task, seed = seeds.task("rmsnorm"), seeds.seed("rmsnorm")
    (rewrite,) = add_edit(examples["rsqrt"]).apply(seed, task)
    assert (seed.code.count("1.0 / tl.sqrt("), rewrite.kernel.code.count("tl.rsqrt(")) == (1, 1)
    assert gate.check(rewrite.kernel.render()).accepted and rewrite.edit == "rsqrt"
    with Store.open_in_memory() as store:
        trials = make_search(store, examples["greedy"], trials=30, window=1).run().trials
        assert len(trials) == 30 and {t.proposal.kind.value for t in trials[1:]} == {"rewrite", "retune"}
        for told, trial in enumerate(trials):
            best = min((t for t in trials[: told or 1] if t.accepted), key=lambda t: (t.score, t.kernel))
            assert trial.proposal.parents in ((), (best.kernel,))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("mine", "x = 1", "has 0 classes that are edits"),
        ("mine", "def f(:", r"cannot be loaded: SyntaxError: .*\(line 1\)"),
        ("mine", "x = 1\ny = 1 / 0", r"mine.py cannot be loaded: ZeroDivisionError: division by zero \(line 2\)"),
        ("online", EDIT, "there is an edit online already"),
    ],
)
def test_a_file_that_is_no_edit_is_one_clear_line(tmp_path, name, text, message):
    (tmp_path / f"{name}.py").write_text(text)
    with pytest.raises(EditError, match=message):
        add_edit(str(tmp_path / f"{name}.py"))
    with pytest.raises(EditError, match="no file"):
        add_edit(str(tmp_path / "none.py"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("raise KeyError('oops')", r"failing.py fails: KeyError: 'oops' \(line 11\)"),
        ("yield 'kernel'; return", r"fails: TypeError: change yields what view.rewrite.* makes, not 'kernel'"),
    ],
)
def test_an_edit_that_fails_is_skipped_and_said_once_and_counted(tmp_path, line, message):
    (tmp_path / "failing.py").write_text(EDIT.replace("patch = tree.Patch(view.text)", line))
    edit, said = add_edit(str(tmp_path / "failing.py")), []
    proposer = TypedEdits()
    proposer.send_sentences_to(said.append)
    task = seeds.task("rmsnorm")
    for seed in ("rmsnorm", "layernorm", "rmsnorm"):
        request = Request(seeds.seed(seed), task, weights={edit.name: 1e9})
        assert proposer.propose(request, random.Random(0)).edit != edit.name
    assert len(said) == 1 and re.search(f"edit failing is skipped where it fails: .*{message}", said[0])
    (counted,) = proposer.list_failures()
    assert re.search(f"edit failing failed on 2 kernels, and was skipped there: .*{message}", counted)


def test_an_engine_of_a_file_is_opened_by_its_path(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(ENGINE)
    (tmp_path / "wrong.py").write_text("x = 1")
    monkeypatch.chdir(tmp_path)
    engine = open_engine("./mine.py:large?speed=3&answers=kernel")
    assert (engine.label, engine.speed, engine.answers) == ("mine", "3", "kernel")
    assert ModelOptions("./mine.py:large").specs == ModelOptions(models=("./mine.py:large",)).specs
    for spec, message in (
        ("./mine.py:large?depth=3", "has no option 'depth': it has speed"),
        ("./wrong.py:large", "no function open"),
        ("./none.py:large", "no file"),
        ("mine:large", "unknown model engine 'mine'"),
    ):
        with pytest.raises(ModelError, match=message):
            parse_spec(spec)
