"""The layers of isolation that a worker enters before it serves, each tried from inside."""
