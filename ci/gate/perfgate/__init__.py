"""A performance gate for pull requests, for any repository with an asv suite."""
