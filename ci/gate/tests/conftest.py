"""No test may depend on whether this machine's processor can be asked to count instructions.

Those whose result depends on counting run twice: without it, and with fixtures/counting in its
place.
"""

import os

os.environ["GATE_NO_COUNTERS"] = "1"
