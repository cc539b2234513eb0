"""One side of the gate in a process of its own, in the suite's environment.

The gate starts `__main__.py` by its path. These modules import each other, asv_runner and
`process/protocol.py`, and nothing else of the gate.
"""
