"""The user's launcher inside a worker: stand-ins for a GPU, and hold of what it launches."""
