"""The interpreter of candidate source under TRITON_INTERPRET: program by program, with every access checked."""
