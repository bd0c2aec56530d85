"""The page: its parts, its settings, and what its buttons do on the server."""
