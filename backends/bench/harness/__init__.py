"""Other tools' benchmarks, run where the server is, their output read into our result."""
