"""No test of the gate depends on whether this machine's processor can count instructions.

Tests about counting run twice: without it, and with what `fixtures/workers` has in its place.
"""

import os

os.environ["GATE_NO_COUNTERS"] = "1"
