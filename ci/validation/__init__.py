"""Test the gate with known changes: mutants and planted slowdowns."""
