"""The run worker: compiled binaries on a GPU, staged, guarded and timed."""
