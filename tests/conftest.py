"""Every test runs with two CPU devices and XLA's options set, as the command line does."""

from hypothesis import settings

from myriad import configure

configure(cpu_devices=2)
# A first example compiles, and a shared machine is slow at times: no test judges by the clock.
settings.register_profile("myriad", deadline=None)
settings.load_profile("myriad")
