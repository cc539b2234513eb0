"""What makes a chunk fast: its draws, its arithmetic, its loops, and the machine that it is for."""
