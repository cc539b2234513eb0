"""Names that users know from the documentation; what stands behind them lives elsewhere in the package."""
