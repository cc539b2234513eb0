"""Worker processes: starting them, and the protocol between them and the gate."""
