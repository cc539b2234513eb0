"""A performance gate for pull requests, for any repository with an asv suite."""

__version__ = "0.1.0"
