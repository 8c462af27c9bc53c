"""What scripts and notebooks call, and the command line too: `optimize`, `verify`, `measure`, `leaderboard`.

`import kernelsearch` offers these names and imports nothing heavy. Each raises KernelsearchError, with a sentence that
says what to do, for a user's mistake; a kernel that is wrong is a `Verdict`.
"""
