"""Compiles source to a binary for a target, and reads facts from it; imports Triton, never torch."""
