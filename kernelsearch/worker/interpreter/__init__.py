"""The interpreter worker: candidate source under TRITON_INTERPRET, program by program, every access seen."""
