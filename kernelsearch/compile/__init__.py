"""Source to binary for a target, and what the binary says of itself; imports Triton, never torch."""
