"""Whole models: the fusible regions of the graphs that torch.compile makes, as tasks, and their kernels put back."""
