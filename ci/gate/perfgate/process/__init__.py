"""Worker processes: how they start, and how the gate talks with them."""
