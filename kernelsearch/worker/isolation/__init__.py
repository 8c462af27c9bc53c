"""What a worker gives up before it serves, layer by layer, each tried from inside."""
