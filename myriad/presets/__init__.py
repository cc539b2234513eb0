"""Presets: TOML tables to copy and change. Code reads them with `importlib.resources`; there is none in here."""
