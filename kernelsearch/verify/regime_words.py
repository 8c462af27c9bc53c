"""The values of each regime in words, for the reader of a verdict that names a regime."""

CHOSEN, REACHING, LONE, PLANTED = "chosen", "reaching", "lone", "planted"
REDRAWN = {
    "reseeded": "integers that the task draws by other seeds",
    "flagged": "integers of 0 and 1 by any density, where the task draws no others",
    "spread": "integers between the least and the largest that the task draws, in part rare",
    "ends": "integers all the least or all the largest that the task draws",
    "near": "integers that are equal or differ by 1 or by 2**32",
    REACHING: "integers up to the largest that the task draws at any shape",
    CHOSEN: "integers of rare draws of the task, as those that end with a block",
    LONE: "integers of which one in each row decides what is largest",
}
"""Regimes that change integers, in words; their floats are normal values."""
OPTIONAL = ("far", "extreme", "masked", "sorted", "stepped")
"""Regimes of floats that count where the task's own kernel is right on them."""
WORDS = {
    **REDRAWN,
    "mixed": "several kinds side by side",
    "randn": "normal values",
    "integers": "whole numbers from -2 to 2",
    "scaled": "rows of secret scales from 1e-4 to 1e4",
    "blocks": "blocks of columns of secret scales",
    "whole": "tensors of secret scales",
    "shifted": "rows far from zero by secret offsets",
    "outlier": "one large value in each row",
    "sparse": "mostly zeros",
    "negative": "no value above zero",
    "own": "values as get_inputs draws them",
    "far": "rows of secret scales beyond 1e4 and below 1e-4",
    "extreme": "rows of secret scales near the ends of their dtype's range",
    "masked": "rows that begin with -inf",
    "sorted": "rows that rise or fall",
    "stepped": "rows in runs of columns, or of every n-th column, with offsets of their own",
    "multiples": "multiples of a number of the reference",
    "opposed": "tensors of one sign each, in turn",
    "offset": "all values near 10",
    PLANTED: "rows in which one element, such as the last, decides what is largest",
    "copied": "values that are equal or nearly so, in a tensor and across tensors",
}
PADDED, PADDED_APART = "rows that lie apart", "rows of each input that lie apart by their own"
"""Inputs in another layout: each row of all followed by a gap; one stride of one input larger."""
LARGER = "a larger "
"""What precedes the name of such a stride."""
OWN_REFERENCE = "the kernel is its own reference: its faults stay"
"""The note on an answer that is right by the task's own kernel."""


def describe_layout(padded: str) -> str:
    """The layout of a case's inputs, for the end of a verdict's reason."""
    return " (inputs with padded rows)" if padded == PADDED else f" (with {LARGER}{padded})" if padded else ""
