"""Times, measured or estimated, and what they are compared with."""
