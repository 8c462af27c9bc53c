"""Names the task file option that would allow what was refused, with an example."""

from __future__ import annotations

import math

from kernelsearch.core.types import Verdict, Word

OF_NUMBERS = ("shared memory", "assert", "Assert", "power of 2")
"""Parts of a compiler's message that point to a kernel's tiles, warps or stages."""

NOT_EXACT, NOT_FINITE = "not the exact answer", "non-finite values differ"
"""What the judge says of whole numbers that are others, and of NaN or infinity that is elsewhere."""

MOST_TOLERANCE = 8.0
"""The largest error, in multiples of what is allowed, for which a TOLERANCE is named."""


def name_cures(verdict: Verdict, own: bool) -> tuple[str, ...]:
    """Sentences that name options of the task file that allow what was refused, if that is meant.

    own: the verdict is on the task's own kernel, whose author may say how exact its answer has to be.
    """
    detail, cures = verdict.detail, []
    if verdict.word is Word.PRECISION and detail.get("needs"):
        cures.append(f'if the task allows it, its file says so: PRECISION = "{detail["needs"]}"')
    if verdict.word is Word.MEMORY and "input" in detail and own:
        cures.append(f'if the launcher is meant to write to that input, name it: MUTATES = ("{detail["input"]}",)')
    if verdict.word is Word.COMPILE and own and any(cause in verdict.reason for cause in OF_NUMBERS):
        cures.append(
            "if it compiles with other numbers, give them in its file: "
            'CONFIG = {"BLOCK": 64, "num_stages": 2}, with the names of the kernel\'s own constexprs'
        )
    if verdict.word is not Word.WRONG or not own or not detail.get("regime"):
        return tuple(cures)
    regime, ties = detail["regime"], any(sign in verdict.reason for sign in (NOT_EXACT, NOT_FINITE))
    if detail.get("outside") or ties:
        name = next(iter(detail.get("inputs") or ["x"]))
        why = "values may be equal there, or 0 / 0" if ties else "get_inputs draws no such values"
        when = "never holds such values, or both answers are right" if ties else "can never hold them"
        cures.append(
            f"{why} (regime {regime!r}): if an input such as {name} {when}, say "
            f'DOMAIN = {{"{name}": "fixed"}} (those of get_inputs) or "positive", "nonnegative", "unit"'
        )
    ratio = verdict.error_ratio
    if ratio is not None and math.isfinite(ratio) and ratio > 1.0:
        if ratio <= MOST_TOLERANCE:
            factor = math.ceil(12 * ratio * detail.get("tolerance", 1.0)) / 10  # limits have grown by the file's own
            cures.append(f"if the kernel is right and the reference's own error says too little: TOLERANCE = {factor}")
        elif not cures:
            cures.append(
                "so large an error is no rounding, which a TOLERANCE could allow: the kernel or its reference is wrong"
            )
    return tuple(cures)
