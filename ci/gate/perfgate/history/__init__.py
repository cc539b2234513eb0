"""Measurements of the main branch, commit by commit."""
