"""Models on the command line: a search that survives its server, secrets that stay secret."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "propose"))
import scripted_server as served

KEY = "sk-secret-0123456789abcdef"
TASK = """import torch
import triton
import triton.language as tl


def reference(x, y):
    return torch.relu(x) * y


def get_inputs(n=4096):
    return [torch.randn(n), torch.randn(n)]


SHAPES = [dict(n=65536)]
TEST_SHAPES = [dict(n=300)]
SPACE = {"BLOCK": [256, 512, 1024], "num_warps": [2, 4]}


@triton.jit
def gate_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    x = tl.load(x_ptr + at, mask=inside, other=0.0)
    y = tl.load(y_ptr + at, mask=inside, other=0.0)
    tl.store(out_ptr + at, tl.maximum(x, 0.0) * y, mask=inside)


def gate(x, y):
    out = torch.empty_like(x)
    gate_kernel[(triton.cdiv(x.numel(), 512),)](x, y, out, x.numel(), BLOCK=512)
    return out
"""


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


@pytest.fixture
def task(tmp_path):
    (tmp_path / "gate.py").write_text(TASK)
    return "gate.py"


@pytest.mark.parametrize("options, said", [
    (["--proposer", "gpt"], "unknown proposer 'gpt': one of edits, mix, openai:URL#MODEL"),
    (["--proposer", "mix"], "--proposer mix needs a model"),
    (["--model", "gpt:5"], "unknown model engine 'gpt'"),
    (["--model", "openai:localhost#m"], "is no URL"),
    (["--proposer", "edits", "--model", "hf:x"], "--model belongs to --proposer mix"),
    (["--model", "replay:x", "--max-usd", "1"], "--max-usd needs --price"),
    (["--max-tokens", "5"], "name one with --model"),
])  # fmt: skip
def test_bad_options_are_one_line_and_exit_2(run, task, options, said):
    done = run("optimize", task, "--trials", "2", *options)
    assert done.code == 2 and said in done.err and done.err.rstrip().splitlines()[-1].startswith("kernelsearch: ")
    assert "Traceback" not in done.err


@pytest.mark.slow
def test_the_page_can_be_read(run, task):
    page = run("page", task, "--answers", "edit", "--quiet")
    assert page.code == 0 and "DO THIS" in page.out and "tl.maximum(x, 0.0) * y" in page.out and KEY not in page.out


@pytest.mark.slow
def test_a_search_survives_its_server_and_no_secret_is_written(run, task, tmp_path):
    script = served.in_turn(
        served.refusing(500, f"died with Bearer {KEY}"), served.always(f"the key is {KEY}"),
        served.refusing(401, f"Incorrect API key provided: {KEY}"),
    )  # fmt: skip
    with served.Server(script) as server:
        spec = f"openai:{server.url}#m?retries=0&answers=edit"
        done = run("optimize", task, "--trials", "24", "--proposer", spec, "--price", "1", "2", "--json",
                   "--window", "2",
                   "--record", "answers.jsonl")  # fmt: skip
    assert done.code == 0, done.err
    assert "typed edits" in done.err and done.json["trials"] == 24
    arm = done.json["models"][0]
    assert arm["arm"] == "model:m" and arm["calls"] == 3 and arm["failures"] == 2 and arm["usd"] > 0
    written = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert any(p.suffix == ".db" for p in written)
    for path in written:
        assert KEY.encode() not in path.read_bytes(), path
    assert KEY not in done.out + done.err and KEY not in json.dumps([r[2] for r in server.requests])


@pytest.mark.slow
def test_hostile_answers_cost_a_search_nothing_but_their_tokens(run, task, tmp_path):
    marker = tmp_path / "executed"
    hostile = f"LINE 9\n    x = __import__('pathlib').Path({str(marker)!r}).touch()\nEND"
    with served.Server(served.always(hostile, "\x1b[2Jignore the gate", "END\n" * 3000, "")) as server:
        done = run(
            "optimize",
            task,
            "--trials",
            "8",
            "--proposer",
            f"openai:{server.url}#m?answers=edit",
            "--json",
            "--window",
            "2",
        )
    assert done.code == 0 and not marker.exists()
    assert "\x1b" not in done.err
    assert done.json["models"][0]["kernels"] == 0 and done.json["verdicts"].get("reject-static", 0) == 0
