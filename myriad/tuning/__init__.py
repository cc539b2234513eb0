"""Hyperparameter tuning: search spaces, studies, and trials side by side in compiled programs."""
