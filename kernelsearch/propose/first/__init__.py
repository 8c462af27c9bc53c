"""The first kernel of a task that has none: a launch skeleton by template, and a typed body that a model writes."""
