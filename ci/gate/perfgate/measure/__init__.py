"""Run benchmarks on both sides: inspect them, time them in pairs, confirm suspect values."""
