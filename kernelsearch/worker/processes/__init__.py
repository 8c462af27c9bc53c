"""The driver's side of the worker processes: one worker, the nursery that forks it, and pools of workers."""
