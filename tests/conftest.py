"""Every test runs with two CPU devices and XLA's options set, as the command line does."""

import os

from hypothesis import settings

from myriad import configure

configure(cpu_devices=2)
# A first example compiles, and a shared machine is slow at times: no test judges by the clock.
settings.register_profile("myriad", deadline=None)
settings.load_profile("myriad")
# No test may depend on whether this machine's processor can be asked to count instructions. Those of the gate whose
# result depends on counting run twice: without it, and with tests/fixtures/counting in its place.
os.environ["GATE_NO_COUNTERS"] = "1"
