"""The figures that `plot_results.py` draws."""
