"""Benchmarks of Myriad: each suite is an airspeed velocity suite and a command line."""
