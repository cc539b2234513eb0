"""Names that the documentation shows. The code behind them lives elsewhere in the package."""
