"""What each kind of worker does: compile, judge, evaluate, run on a GPU, time for a confirmation."""
