"""The values of each regime in words, for the reader of a verdict that names a regime."""

REDRAWN = {
    "reseeded": "integers that the task draws by other seeds",
    "flagged": "integers of 0 and 1, where the task draws no others",
    "spread": "integers between the least and the largest that the task draws",
}
"""Regimes that change integers, in words; their floats are normal values."""
WORDS = {
    **REDRAWN,
    "mixed": "several of the others side by side, along one axis",
    "randn": "normal values",
    "integers": "whole numbers from -2 to 2, which every order of summing gets exactly right",
    "scaled": "each row has a secret scale from 1e-4 to 1e4",
    "blocks": "each block of columns has a secret scale from 1e-4 to 1e4",
    "whole": "each tensor has a secret scale from 1e-4 to 1e4",
    "shifted": "each row has a secret offset from 1e-4 to 5e3, and noise that is up to 1e4 times smaller",
    "far": "each row of one tensor has a secret scale, below 1e-4 or from 1e4 to 7e7",
    "extreme": "each row of one tensor has a secret scale, near the ends of the dtype's range",
    "masked": "rows of one tensor begin with a stretch of -inf, as masked logits do",
    "outlier": "normal values with one of 30 or 300 in each row",
    "sparse": "nineteen of twenty are zero, and whole blocks",
    "negative": "no value is positive",
    "own": "values as get_inputs draws them",
}
