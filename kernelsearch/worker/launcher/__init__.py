"""Runs the user's launcher inside a worker: stand-ins for a GPU, and interception of its launches."""
