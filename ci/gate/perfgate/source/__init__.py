"""Both commits as checkouts, with the environment that each runs in."""
