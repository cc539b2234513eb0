"""The libraries that are compared, each in its own process."""
