"""`studies/models/proposals.py`: every answer is in a row, equal ones in one, and each refusal says why in one line."""

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import simulated
from kernelsearch.kernel.source import Kernel
from kernelsearch.tasks import shipped

sys.path.insert(0, str(Path(simulated.__file__).parent / "models"))
import proposals
import scripted_server as served
from proposal_report import ProposalReport, ProposalResult, as_text

KEY = "sk-secret-0123456789abcdef"

STAGES = ("stopped", "grammar", "gate", "compiles", "right", "faster")
SEED = Kernel.parse(simulated.SEED_KERNEL)


def made(number):
    return SEED.with_changes(constants=(f"extra = tl.constexpr({number})",))


def answer(edit, kernel, passed, reason="", ratio=None):
    refused = STAGES[passed] if passed < len(STAGES) else ""
    return ProposalResult("It says\nwhat.", edit, kernel, STAGES[:passed], refused, reason, ratio)


def test_every_answer_has_a_row_and_equal_ones_share_theirs():
    report = ProposalReport("softmax", "f" * 16, "edits", STAGES, evidence="estimated")
    report.proposals = [
        answer("slow_edit", made(1), 5, "1.250 of the parent's time", 1.25),
        answer("fast_edit", made(2), 6, ratio=0.5),
        answer("fast_edit", made(2), 6, ratio=0.5),
        answer("", None, 1, "line 3: 'tl.foo' is no name that a kernel may use"),
        answer("", None, 1, "line 9: 'tl.foo' is no name that a kernel may use"),
        answer("big_edit", made(3), 3, "reject-compile: needs 262144 bytes of shared memory,\n the target has 232448"),
    ]
    lines = as_text(report).splitlines()
    assert "6 answers of edits, 3 different kernels" in lines[0]
    table = {line.split()[1]: line for line in lines[2:6]}
    assert list(table) == [made(2).digest[:8], made(1).digest[:8], "-", made(3).digest[:8]]
    fast, slow, unread, big = (line.split(maxsplit=3) for line in table.values())
    assert fast == ["2", made(2).digest[:8], "fast_edit", "2.00"] and slow[3] == "0.80"
    assert unread[0] == "2" and unread[3] == "grammar: line 3: 'tl.foo' is no name that a kernel may use"
    assert big[3].startswith("compiles: reject-compile: needs 262144 bytes of shared memory, the target has")
    assert "x parent (estimated)" in lines[1]
    assert lines[6].split(maxsplit=1)[1] == "6 stopped (100 %), 4 gate (67 %), 3 right (50 %), 2 faster (33 %)"


def test_no_answer_is_no_table():
    report = ProposalReport("softmax", "f" * 16, "m", STAGES, failures=["401", "401"])
    assert as_text(report).splitlines()[1:] == ["  no answer: 401"]


@pytest.fixture
def run(borrowing, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    task = ["softmax.py", "--target", "h100", "--quiet"]
    Path("softmax.py").write_text(shipped.text("softmax"))
    return lambda *options: CliRunner().invoke(proposals.main, [*task, *options])


@pytest.mark.slow
def test_proposals_come_with_their_fates_and_rates(run):
    with served.Server(served.obedient) as server:
        done = run("--proposer", f"openai:{server.url}#random?answers=edit", "-n", "6", "--until", "right", "--json",
                   "--record", "answers.jsonl")  # fmt: skip
    found = json.loads(done.stdout)
    stages = found["stages"]
    assert done.exit_code == 0 and found["n"] == 6 and len(found["proposals"]) == 6
    assert list(stages) == ["stopped", "grammar", "parses", "names", "gate", "compiles", "right"]
    assert all(stages[s]["rate"] == 1.0 for s in ("stopped", "grammar", "parses", "gate"))
    counts = [s["passed"] for s in stages.values()]
    assert counts == sorted(counts, reverse=True) and stages["compiles"]["passed"] > 0
    for proposal in found["proposals"]:
        assert proposal["refused"] is None or proposal["reason"]
    again = run("--proposer", "replay:answers.jsonl", "-n", "6", "--until", "gate", "--json")
    assert [p["answer"] for p in json.loads(again.stdout)["proposals"]] == [p["answer"] for p in found["proposals"]]


@pytest.mark.slow
def test_typed_edits_are_asked_and_a_server_that_refuses_is_one_line(run):
    edits = run("--proposer", "edits", "-n", "2", "--until", "gate")
    assert edits.exit_code == 0 and "2 answers of edits" in edits.stdout
    with served.Server(served.refusing(401, f"Incorrect API key provided: {KEY}")) as server:
        done = run("--proposer", f"openai:{server.url}#m?answers=edit", "-n", "2")
    assert done.exit_code == 1 and KEY not in done.stderr + done.stdout
    assert "no answer: m: 401" in done.stdout and "grammar" not in done.stdout  # no table of nothing
