"""The text of `propose`: every answer is in a row, equal ones in one, and each refusal says why in one line."""

import simulated
from kernelsearch.kernel.source import Kernel
from kernelsearch.report.proposal_report import ProposalReport, ProposalResult, as_text

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
