"""The driver's side of the processes: one worker, where workers come from, pools of them."""
