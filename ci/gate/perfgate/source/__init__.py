"""Check out both commits, each with the environment that it runs in."""
