"""Messages between the driver and its workers: plain data over a socket."""
