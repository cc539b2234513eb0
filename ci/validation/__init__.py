"""The gate held to known changes: its self-test, planted slowdowns and mutants."""
