"""Every test runs with two CPU devices and XLA's options set, as the command line does."""

from myriad import configure

configure(cpu_devices=2)
