"""A kernel as data: its source, launch, expressions and space, and the targets that it is compiled for."""
