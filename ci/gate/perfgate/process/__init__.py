"""What gate and workers share: their messages, and the process that outlives both."""
