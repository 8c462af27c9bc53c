"""A model that learns from the record: training data out of databases, and training on them."""
