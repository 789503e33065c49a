"""Everything that is not a screen: hosts, links, telemetry, tuning, servers, benchmarks."""
