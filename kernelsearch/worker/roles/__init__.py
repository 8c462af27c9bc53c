"""What each kind of worker does: compile, judge, interpret, run on a GPU, time for a confirmation."""
