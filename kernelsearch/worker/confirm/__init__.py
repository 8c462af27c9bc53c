"""The confirmed protocol: its questions, its worker, and the driver's session with it."""
