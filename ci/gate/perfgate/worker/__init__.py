"""A worker runs the benchmarks of one side in its own process, in the suite's environment.

The gate starts `__main__.py` by its path. These modules only import each other, asv_runner,
`process/protocol.py` and the standard library, but nothing else of the gate.
"""
