"""Evaluates TTIR on a CPU: all programs of a grid step together, with the hardware's rounding and exact addresses."""
