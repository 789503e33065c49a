"""How a host is reached: over SSH, on this machine, or the demo host."""
