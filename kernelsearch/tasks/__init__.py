"""Task files: three forms of a user's file, one live `Task`, and what the driver needs to know of it as plain data.

`load.load(path)` gives a `task.Task` in a trusted process that has torch and Triton;
`facts.describe(task, trace)` gives the `types.TaskFacts` that the driver works with;
`shipped` finds the project's own tasks and imports neither torch nor Triton.
"""
