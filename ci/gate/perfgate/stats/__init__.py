"""The gate's statistics. Nothing here starts a process or reads a file."""
