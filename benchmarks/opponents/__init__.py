"""Whom trained agents are compared with, by `learning.py --against`."""
