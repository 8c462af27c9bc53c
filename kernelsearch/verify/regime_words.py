"""The values of each regime in words, for the reader of a verdict that names a regime."""

WORDS = {
    "mixed": "several of the others side by side, along one axis",
    "randn": "normal values",
    "integers": "whole numbers from -2 to 2, which every order of summing gets exactly right",
    "large": "normal values times 20",
    "offset": "values very near 10: subtracting two large sums leaves no digits",
    "outlier": "normal values with one of 30 or 300 in each row",
    "huge": "normal values times 10,000",
    "tiny": "normal values times 0.000001 or the dtype's smallest",
    "sparse": "nineteen of twenty are zero, and whole blocks",
    "negative": "no value is positive",
    "own": "values as get_inputs draws them",
}
