"""Task files: three forms of a user's file, one loaded `Task`, and its facts as plain data for the driver.

`load.load(path)` gives a `task.Task` in a trusted process that has torch and Triton;
`facts.describe(task, trace)` gives the `types.TaskFacts` that the driver works with;
`shipped` finds the project's own tasks and imports neither torch nor Triton.
"""
