"""Statistics alone: no process, no file."""
