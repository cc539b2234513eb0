"""What a run records and shows: its folder, its history, trackers, the progress line and films."""
