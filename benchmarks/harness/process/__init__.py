"""Processes of a benchmark: start them, limit them, and report their failures."""
