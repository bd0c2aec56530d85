"""Sessions of coding agents: one conversation is spread over many lines."""
