"""Worker processes, and how a command begins and ends."""
