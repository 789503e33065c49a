"""The ways to run a server on a host, behind one protocol."""
