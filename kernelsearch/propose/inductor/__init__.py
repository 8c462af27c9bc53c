"""The first kernels of a task that has none, from the Triton source that TorchInductor writes for its reference."""
