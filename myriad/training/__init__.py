"""Training: the configuration, the compiled updates and the host loop that calls them."""
