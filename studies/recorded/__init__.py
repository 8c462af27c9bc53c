"""Simulated searches on recorded spaces, without a compiler or a GPU."""
