"""From the agent's lines to readings, rates and histories."""
