"""Training: the configuration, the compiled updates, and the host loop around them."""
