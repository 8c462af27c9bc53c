"""A kernel as data: the operations of its TTIR, read from the compiler's own text."""
