"""One picture for each environment, drawn from one state; an environment's `render` imports its own on first use."""
