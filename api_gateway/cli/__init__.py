"""The `sourcemill` command: the embedded stack, and a client of the HTTP API."""
