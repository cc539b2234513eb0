"""Test the gate with known changes: a self-test, planted slowdowns and mutants."""
