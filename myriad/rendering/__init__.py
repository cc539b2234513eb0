"""One drawing for each environment, imported by its `render` on first use."""
