"""A task without a kernel on the command line: what to do about it, and what a model does about it."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "propose"))
import scripted_server as served

TASK = """import torch


def reference(x, w):
    return x * torch.sigmoid(x) * w


def get_inputs(rows=64, cols=40):
    return [torch.randn(rows, cols), torch.randn(cols)]


TEST_SHAPES = [dict(rows=3, cols=17)]
"""
WRONG = "BODY\n    t0 = tl.sigmoid(x)\n    out = (t0 * w)\nEND"
RIGHT = "BODY\n    t0 = (x * tl.sigmoid(x))\n    out = (t0 * w)\nEND"


@pytest.fixture
def task(tmp_path):
    (tmp_path / "gated.py").write_text(TASK)
    return "gated.py"


def first(*answers):
    """A server that writes the first kernel so, in turn, and then draws from the grammar that it is sent."""
    left = list(answers)

    def script(request):
        if "REFERENCE" not in request["messages"][1]["content"]:
            return served.obedient(request)
        return served.Say((left.pop(0) if len(left) > 1 else left[0],))

    return served.Server(script)


def test_without_a_model_and_a_kernel_of_inductors_the_error_says_what_to_do(run, tmp_path):
    inputs = "def get_inputs(n=64):\n    return [torch.randn(n, n)]\n"
    (tmp_path / "plain.py").write_text(
        f"import torch\n\ndef reference(x):\n    return torch.linalg.svd(x)[1]\n\n{inputs}"
    )
    result = run("optimize", "plain.py", "--trials", "2")
    assert result.code == 2 and "Traceback" not in result.err
    assert "has no kernel" in result.err and "@triton.jit" in result.err and "--model openai:" in result.err


def test_a_model_writes_the_first_kernel_after_a_repair_and_the_search_goes_on(run, task, tmp_path):
    with first(WRONG, RIGHT) as server:
        options = ("--target", "h100", "--model", f"openai:{server.url}#m?seed=off", "--json")
        result = run("optimize", task, "--trials", "2", *options)
        pages = [r["messages"][1]["content"] for _, _, r in server.requests]
        again = run("optimize", task, "--trials", "3", *options, "--resume")
        assert len([p for p in pages if "REFERENCE" in p]) == len(
            [1 for _, _, r in server.requests if "REFERENCE" in r["messages"][1]["content"]]
        )
    assert result.code == 0, result.err
    assert "x * torch.sigmoid(x) * w" in pages[0] and "WAS REFUSED" in pages[1] and WRONG in pages[1]
    text = (tmp_path / "gated_seeded.py").read_text()
    assert text.startswith(TASK.rstrip()) and "t0 = (x * tl.sigmoid(x))" in text
    said = result.json
    (arm,) = [m for m in said["models"] if m["arm"] == "first:m"]
    assert (arm["calls"], arm["answers"]) == (2, 2)
    assert again.code == 0 and again.json["trials"] == 3


def test_a_model_in_this_process_is_loaded_once_for_the_first_kernel_and_the_search(run, task, monkeypatch):
    from kernelsearch.propose.engines import Engine, Reply, Sample, registry

    made = []

    class Local(Engine):
        name, label = "hf:model", "model"

        def complete(self, ask):
            return Reply((Sample(RIGHT if "REFERENCE" in ask.page else "END"),), 10, 1)

        def close(self):
            made.append("closed")

    def make(spec):
        made.append(spec)
        return Local()

    monkeypatch.setattr(registry, "open_engine", make)
    result = run("optimize", task, "--trials", "2", "--target", "h100", "--model", "hf:model")
    assert result.code == 0, result.err
    assert made == ["hf:model", "closed"]


@pytest.mark.parametrize("answer, said", [
    ("Sure! Here is your kernel.", "9 grammar"),
    (None, "no model answered: m: 401"),
])  # fmt: skip
def test_a_model_that_writes_none_ends_the_command_and_leaves_no_file(run, task, tmp_path, answer, said):
    script = served.always(answer) if answer else served.refusing(401, "bad key")
    with served.Server(script) as server:
        result = run("optimize", task, "--trials", "2", "--target", "h100", "--model", f"openai:{server.url}#m")
    assert result.code == 2 and said in result.err and "Traceback" not in result.err
    assert sorted(p.name for p in tmp_path.glob("*.py")) == ["gated.py"]


def test_what_no_skeleton_fits_is_one_clear_line(run, task, tmp_path):
    (tmp_path / "gated.py").write_text(TASK.replace("x * torch.sigmoid(x) * w", "x.sum()"))
    result = run("optimize", task, "--trials", "2", "--target", "h100", "--model", "openai:http://127.0.0.1:9/v1#m")
    assert result.code == 2 and "a model can write none" in result.err and "one number a row" in result.err
