"""LLM servers: profiles, engines, life cycle, logs, failures."""
