"""Names the task file option that would allow what was refused, with an example."""

from __future__ import annotations

import math

from kernelsearch.core.types import Verdict, Word
from kernelsearch.verify.regime_words import WORDS

OF_NUMBERS = ("shared memory", "assert", "Assert", "power of 2")
"""Parts of a compiler's message that point to a kernel's tiles, warps or stages."""

NOT_EXACT, NOT_FINITE = "not the exact answer", "non-finite values differ"
"""What the judge says of whole numbers that are others, and of NaN or infinity that is elsewhere."""

MOST_TOLERANCE, MOST_WRONG = 1.6, 0.02
"""The largest error, in multiples of what is allowed, and the largest share of wrong elements for which a TOLERANCE is
named: the tail of honest roundings is short and rare, and a larger TOLERANCE would let wrong kernels in."""


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
    if (detail.get("outside") and not detail.get("narrow")) or ties:
        name = next(iter(detail.get("inputs") or ["x"]))
        why = "values may be equal there, or 0 / 0" if ties else "get_inputs draws no such values"
        when = "never holds such values, or both answers are right" if ties else "can never hold them"
        cures.append(
            f"{why} (inputs: {WORDS.get(regime, regime)}): if an input such as {name} {when}, say "
            f'DOMAIN = {{"{name}": "fixed"}} (those of get_inputs) or "positive", "nonnegative", "unit"'
        )
    ratio = verdict.error_ratio
    if ratio is not None and math.isfinite(ratio) and ratio > 1.0:
        rare = detail.get("wrong", 0) <= max(2.0, MOST_WRONG * detail.get("of", 1))
        if detail.get("narrow"):
            cures.append(
                "the error is that of rounding to 16 bits what the reference keeps in float32: if that is meant, let "
                "the reference round there too, as in (b * scale).to(x.dtype) ahead of a product"
            )
        elif ratio <= MOST_TOLERANCE and rare:
            factor = math.ceil(105 * ratio * detail.get("tolerance", 1.0)) / 100  # limits have grown by the file's own
            cures.append(f"if the kernel is right and the reference's own error says too little: TOLERANCE = {factor}")
        elif not cures:
            cures.append(
                "such an error is more than the reference's own roundings make: kernel or reference is wrong, or the "
                "kernel rounds what the reference does not (to 16 bits ahead of a product): let the reference do so too"
            )
    return tuple(cures)
