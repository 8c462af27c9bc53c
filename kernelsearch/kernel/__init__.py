"""A kernel as data: its source, its launch, the expressions and the space that go with it, and what it is compiled for."""
