"""The libraries that are measured beside each other, each in a process of its own."""
