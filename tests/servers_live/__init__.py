"""Servers on a real host: started, found, looked at, stopped; files followed."""
