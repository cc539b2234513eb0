"""Processes of a benchmark: starting one, limiting it, and what it says when it fails."""
