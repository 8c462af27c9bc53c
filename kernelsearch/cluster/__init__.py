"""Evaluates candidates on many GPUs and machines: benches in actors of Ray, and the driver's side of them."""
