"""What a script passes wrongly is one sentence that names the argument, what is expected, and the near name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from kernelsearch.core.arguments import Count, checked, checked_fields
from kernelsearch.core.errors import KernelsearchError
from kernelsearch.core.types import Evidence


@checked_fields
@dataclass(frozen=True)
class Wanted:
    trials: Count = 200
    edits: tuple[str, ...] = ()
    price: tuple[float, float] | None = None
    limit: Count | None = None
    quiet: bool = False
    evidence: Evidence = Evidence.ESTIMATED


@checked
def ask(path: str, wanted: Wanted | None = None) -> str:
    return path


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"trails": 3}, "no argument 'trails': did you mean trials?"),
        ({"speed": 3}, "no argument 'speed': there are trials, edits, price, limit, quiet, evidence"),
        ({"trials": "40"}, "trials is a whole number of at least 1, not '40'"),
        ({"trials": 0}, "trials is a whole number of at least 1, not 0"),
        ({"trials": True}, "trials is a whole number of at least 1, not True"),
        ({"limit": -1}, "limit is a whole number of at least 1 or None, not -1"),
        ({"edits": 3}, "edits is a tuple of texts or paths, not 3"),
        ({"edits": ["a.py", 3]}, "edits is a tuple of texts or paths, not ['a.py', 3]"),
        ({"price": (1, 2, 3)}, "price is 2 numbers or None, not (1, 2, 3)"),
        ({"quiet": "no"}, "quiet is True or False, not 'no'"),
        ({"evidence": "foo"}, "evidence is one of estimated, measured, confirmed, not 'foo'"),
        ({"evidence": "measurd"}, "evidence is one of .*, not 'measurd': did you mean 'measured'?"),
    ],
)
def test_a_wrong_argument_is_one_sentence(given, message):
    for make in (Wanted, lambda **fields: replace(Wanted(), **fields)):
        with pytest.raises(KernelsearchError) as caught:
            make(**given)
        assert str(caught.value) == message.replace(".*", "estimated, measured, confirmed")


def test_what_fits_is_taken_as_the_hint_says():
    wanted = Wanted(edits="mine.py", price=[1, 2.5], evidence="measured")
    assert (wanted.edits, wanted.price, wanted.evidence) == (("mine.py",), (1, 2.5), Evidence.MEASURED)
    assert Wanted(edits=[Path("a.py"), "b.py"]).edits == ("a.py", "b.py") and Wanted() == Wanted(200, price=None)
    assert ask(Path("a.py"), Wanted()) == "a.py"
    with pytest.raises(KernelsearchError, match="wanted is Wanted or None, not 3"):
        ask("a.py", 3)
    with pytest.raises(KernelsearchError, match="ask: missing a required argument: 'path'"):
        ask()
