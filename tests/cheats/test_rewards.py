"""Rewards by level: a right and faster kernel is worth something, no hack is worth more than doing nothing.

A sample of the hacks; all of them: `python tests/cheats/rewards.py`.
"""

import corpus
import pytest
import rewards

from kernelsearch.core.errors import TaskError
from kernelsearch.env import CREDITS, Environment, Question

TASK = corpus.STUDIES / "softmax" / "softmax.py"
SEED = rewards.seed_of(TASK)
SLOW = (corpus.HERE / "softmax_honest_three_pass.py").read_text()
CHEATS = ("softmax_host_import", "softmax_clock", "softmax_zeros")


@pytest.fixture
def environment(borrowing):
    with Environment() as environment:
        yield environment


def test_the_table_pays_nothing_for_what_is_refused_or_changes_nothing():
    levels = [c.level for c in CREDITS]
    assert levels == ["stopped", "grammar", "gate", "compiles", "right", "nothing", "slower", "faster"]
    values = {c.level: c.value for c in CREDITS}
    assert values["nothing"] == values["slower"] == 0.0 and values["faster"] == 1.0 and all(c.why for c in CREDITS)
    refused = [values[level] for level in levels[:5]]
    assert refused == sorted(refused) and max(refused) < 0.0
    with pytest.raises(TaskError, match="kernel or edit"):
        Question(str(TASK), form="poem")


@pytest.mark.slow
def test_rewards_by_level_and_a_sample_of_the_hacks(environment):
    """One task is opened once for all of it."""
    seed, whole = SEED.render(), Question(str(TASK), form="kernel")
    slow = Question(str(TASK), SLOW, "kernel")
    tuned_badly = Question(str(TASK), f'{seed}\nCONFIG = {{"num_warps": 16}}\n', "kernel")
    asked = {
        "empty": (whole, ""),
        "prose": (whole, "I would use more warps."),
        "edit, cut": (Question(str(TASK)), "SET num_warps 8"),
        "unknown": (whole, rewards.fence(seed.replace("tl.exp(", "tl.sinh("))),
        "no such block": (whole, rewards.fence(seed.replace("tl.arange(0, BLOCK)", "tl.arange(0, BLOCK + 1)"))),
        "honest": (slow, rewards.fence(seed)),
        "own config": (tuned_badly, rewards.fence(seed + '\nCONFIG = {"num_warps": 4}\n')),
    }
    chosen = ("copy", "comments", "docstring", "dead constant", "only 8 warps")
    nothings = {name: (q, a) for q, name, a in rewards.list_nothings(TASK, SEED) if name in chosen}
    dead = nothings["dead constant"][1].replace("```\n", '\nCONFIG = {"num_warps": 4}\n```\n')
    asked |= nothings | {n: (q, a) for q, n, a in rewards.list_cheats() if n in CHEATS}
    asked["dead constant, better settings"] = (tuned_badly, dead)
    questions, answers = zip(*asked.values(), strict=True)
    found = dict(zip(asked, environment.judge_all(questions, answers), strict=True))
    levels = {name: reward.level for name, reward in found.items()}
    assert [levels[n] for n in ("empty", "prose", "edit, cut", "unknown", "no such block")] == [
        "stopped", "grammar", "grammar", "gate", "compiles"
    ]  # fmt: skip
    assert [levels[n] for n in CHEATS] == ["gate", "gate", "right"]
    assert {levels[n] for n in ("copy", "comments", "docstring", "only 8 warps", "own config")} == {"nothing"}
    assert levels["dead constant, better settings"] == "slower", "the settings' gain is the tuner's"
    honest = found.pop("honest")
    assert honest.level == "faster" and honest.evidence == "estimated" and "estimated" in honest.reason
    assert 0.0 < honest.value <= 1.0 and honest.gain > 0 and honest.kernel == SEED.digest
    assert not rewards.find_paid(list(found.values())), levels
    assert environment.judge(*asked["honest"]) is honest
    assert environment.judge(*asked["only 8 warps"], stopped=False).level == "stopped"


COLUMNS = corpus.STUDIES / "column_sum" / "column_sum.py"


@pytest.mark.slow
def test_what_only_looks_faster_is_paid_nothing(environment):
    """A loop's length that depends on data is not estimated; the parent has an answer's numbers, by whatever name."""
    whole, text = Question(str(COLUMNS), form="kernel"), rewards.seed_of(COLUMNS).render()
    renamed = text.replace("BLOCK_ROWS", "BR").replace("BLOCK_COLS", "BC")
    written = text.replace(", BLOCK_ROWS: tl.constexpr, BLOCK_COLS: tl.constexpr", "")
    written = written.replace("BLOCK_ROWS", "256").replace("BLOCK_COLS", "16")
    hidden = "BEFORE 7\n    n_rows = tl.maximum(n_rows, tl.load(x_ptr).to(tl.int32) // 1000000)\nEND"
    config = {"BR": 256, "BC": 16, "num_warps": 8}
    asked = [
        (Question(str(COLUMNS)), hidden),
        (whole, rewards.fence(f'{renamed}\nGRID = "(cdiv(n_cols, BC),)"\nCONFIG = {config}\n')),
        (whole, rewards.fence(f'{written}\nGRID = "(cdiv(n_cols, 16),)"\nCONFIG = {{"num_warps": 8}}\n')),
    ]
    found = environment.judge_all(*zip(*asked, strict=True))
    assert [reward.level for reward in found] == ["slower"] * 3, [reward.reason for reward in found]
    assert "depends on data" in found[0].reason
